;;; What the tests share: files, and how a test file ends.

(define-module (tests common)
  #:use-module (ice-9 match)
  #:use-module (srfi srfi-1)
  #:use-module (srfi srfi-64)
  #:use-module (unisonic ffi)
  #:export (fixture smollm2 collect-all! status-of message-of run-tests some-tokens))

(define (fixture name)
  "The path of a tiny model.  Where there is none, a line that says how to make it, and the end of the process as failed."
  (let ((path (string-append ".fixtures/" name ".gguf")))
    (unless (file-exists? path)
      (format (current-error-port) "~a is missing: run make fixtures~%" path)
      (exit 1))
    path))

(define (smollm2)
  "The path of SmolLM2-135M; #f, and a line that says so, where there is none: the tier quick needs no models."
  (let ((path "models/smollm2-135m-instruct-q4_1.gguf"))
    (cond ((file-exists? path) path)
          (else (format (current-error-port) "skipped: SmolLM2-135M (~a is missing: run make model)~%" path) #f))))

(define (collect-all!)
  "Collects garbage until nothing more of it has handles."
  (let loop ((before (live-handles)) (left 10))
    (gc)
    (collect-handles!)
    (when (and (> left 0) (or (> left 8) (< (live-handles) before)))
      (loop (live-handles) (- left 1)))))

(define (condition-of thunk)
  (with-exception-handler identity
    (lambda () (thunk) #f)
    #:unwind? #t))

(define (status-of thunk)
  "The status of the condition that THUNK raises."
  (let ((condition (condition-of thunk)))
    (if (unisonic-error? condition) (unisonic-error-status condition) condition)))

(define (message-of thunk)
  "The message of the condition that THUNK raises."
  ((@ (ice-9 exceptions) exception-message) (condition-of thunk)))

(define (some-tokens count vocabulary)
  "A list of token ids, always the same."
  (unfold (lambda (state) (= (cdr state) count))
          (lambda (state) (modulo (quotient (car state) 65536) vocabulary))
          (lambda (state) (cons (modulo (+ (* 1103515245 (car state)) 12345) 2147483648) (+ 1 (cdr state))))
          (cons 20261130 0)))

(define-syntax-rule (run-tests name body ...)
  "Runs tests, says what failed, and ends the process with 1 if something did."
  (let ((runner (test-runner-null)))
    (test-runner-on-test-end! runner
      (lambda (runner)
        (when (memq (test-result-kind runner) '(fail xpass))
          (format #t "FAILED ~a: ~a~%" name (test-runner-test-name runner))
          (for-each (match-lambda ((key . value) (format #t "  ~a: ~s~%" key value)))
                    (test-result-alist runner)))))
    (test-with-runner runner
      (test-begin name)
      body ...
      (test-end name))
    (format #t "~a: ~a passed, ~a failed~%" name
            (test-runner-pass-count runner) (test-runner-fail-count runner))
    (exit (if (zero? (test-runner-fail-count runner)) 0 1))))
