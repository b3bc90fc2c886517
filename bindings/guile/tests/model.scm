;;; Whole models: generation with callbacks, as a stream, and through continuations.

(use-modules (ice-9 control) (ice-9 match) (srfi srfi-1) (srfi srfi-41) (srfi srfi-64)
             (ice-9 threads)
             (tests common) (unisonic ffi) (unisonic model) (unisonic tensor))

(define (test-generation path)
  (let* ((model (load-model path #:context 256))
         (prompt '(1 2 3 4))
         (pieces '())
         (ids '())
         (completion (generate model prompt #:max-tokens 40
                               #:on-text (lambda (text) (set! pieces (cons text pieces)))
                               #:on-token (lambda (token) (set! ids (cons token ids))))))
    (test-equal 'length (completion-stop completion))
    (test-equal 40 (length (completion-tokens completion)))
    (test-equal (completion-tokens completion) (reverse ids))
    (test-equal (completion-text completion) (string-concatenate-reverse pieces))
    (test-equal "guessing changes nothing" (completion-tokens completion)
      (completion-tokens (generate model prompt #:max-tokens 40 #:speculation? #f)))
    (test-equal "the stream is the text" (completion-text completion)
      (string-concatenate (stream->list (text-stream model prompt #:max-tokens 40))))
    (let ((drawn (lambda () (completion-tokens (generate model prompt #:max-tokens 20 #:temperature 2 #:top-k 50 #:seed 3)))))
      (test-equal "a seed decides" (drawn) (drawn)))
    (test-equal "an answer that follows an expression" "ab"
      (completion-text (generate model prompt #:max-tokens 20 #:regex "ab")))
    ;; A callback may raise, leave, and be resumed.
    (test-equal 'mine (catch 'mine (lambda () (generate model prompt #:max-tokens 40 #:on-token (lambda (_) (throw 'mine))))
                        (lambda (key) key)))
    (test-equal 'left (call/ec (lambda (k) (generate model prompt #:max-tokens 40 #:on-token (lambda (_) (k 'left))))))
    (let resume ((thunk (lambda ()
                          (test-equal "suspended at each token" (completion-tokens completion)
                            (completion-tokens
                             (generate model prompt #:max-tokens 40
                                       #:on-token (lambda (token) (abort-to-prompt 'suspended token)))))))
                 (count 0))
      (let ((again (call-with-prompt 'suspended (lambda () (thunk) #f) (lambda (k _) k))))
        (if again
            (resume again (+ count 1))
            (test-equal 40 count))))
    ;; Conditions have a status and say what is wrong.
    (test-equal 'invalid-argument (status-of (lambda () (generate model '(1 -1)))))
    (test-equal 'invalid-argument (status-of (lambda () (generate model (list (model-vocabulary model))))))
    (test-equal 'invalid-argument (status-of (lambda () (generate model '()))))
    (test-equal 'context-full (status-of (lambda () (generate model (make-list 300 1)))))
    (test-equal 'invalid-argument (status-of (lambda () (generate model prompt #:temperature -1))))
    (test-assert (string-contains (message-of (lambda () (generate model (list (model-vocabulary model))))) "tokens of the model are 0 to"))
    (test-equal "and the model goes on as before" (completion-tokens completion)
      (completion-tokens (generate model prompt #:max-tokens 40)))))

(define (test-sharing path)
  "Two generations of one model by turns, and several threads, give what each gives alone."
  (let* ((model (load-model path #:context 256 #:sequences 4))
         (prompts '((1 2 3) (9 8 7 6) (40 41)))
         (text (lambda (prompt) (completion-text (generate model prompt #:max-tokens 25))))
         (right (map text prompts)))
    (let loop ((streams (map (lambda (prompt) (text-stream model prompt #:max-tokens 25)) prompts))
               (texts (map (const "") prompts)))
      (if (every stream-null? streams)
          (test-equal "by turns" right texts)
          (loop (map (lambda (stream) (if (stream-null? stream) stream (stream-cdr stream))) streams)
                (map (lambda (stream text) (if (stream-null? stream) text (string-append text (stream-car stream))))
                     streams texts))))
    (test-equal "in threads" right
      (map join-thread (map (lambda (prompt) (call-with-new-thread (lambda () (text prompt)))) prompts)))
    ;; Made in one thread, used in another, freed in a third.
    (let* ((session (join-thread (call-with-new-thread (lambda () (make-session model)))))
           (logits (join-thread (call-with-new-thread (lambda () (session-append! session '(1 2)) (session-logits session))))))
      (test-equal '(1 2) (session-tokens session))
      (session-truncate! session 1)
      (session-append! session '(2))
      (test-assert "what was forgotten leaves no trace" (tensor=? logits (session-logits session)))
      (join-thread (call-with-new-thread (lambda () (close-handle! (session-handle session)))))
      (test-equal 'invalid-handle (status-of (lambda () (session-tokens session)))))))

(define (test-paths path)
  "A path may be of any characters."
  (let* ((folder (mkdtemp "/tmp/unisonic-XXXXXX"))
         (copy (string-append folder "/модель 模型 🦙 " (make-string 100 #\ы) ".gguf")))
    (copy-file path copy)
    (test-equal "llama" (model-architecture (load-model copy)))
    (delete-file copy)
    (rmdir folder)))

(define (test-chat path)
  (let* ((model (load-model path #:context 512))
         (chat (make-chat model #:system "You answer in one word."))
         (answer (chat-say chat "What is the capital of France?" #:max-tokens 8)))
    (test-assert answer (string-contains answer "Paris"))
    (test-equal '("system" "user" "assistant") (map car (chat-messages chat)))
    (test-equal 'mine (catch 'mine (lambda () (chat-say chat "And of Italy?" #:on-text (lambda (_) (throw 'mine))))
                        (lambda (key) key)))
    (test-equal "an answer that did not come leaves no trace" 3 (length (chat-messages chat)))
    (test-equal "text comes back" "Zwölf Boxkämpfer, 箱"
      (decode model (encode model "Zwölf Boxkämpfer, 箱" #:prompt? #f)))))

(define (test-leaks path)
  "Handles go when nothing refers to them, whatever left early."
  (let ((model (load-model path #:context 256)))
    (collect-all!)
    (let ((before (live-handles)) (of-library (library-handles)))
      (do ((round 0 (+ round 1))) ((= round 30))
        (catch 'mine (lambda () (generate model '(1 2) #:max-tokens 5 #:on-token (lambda (_) (throw 'mine)))) (const #f))
        (call/ec (lambda (k) (generate model '(1 2) #:max-tokens 5 #:on-token k)))
        (call-with-prompt 'p
          (lambda () (generate model '(1 2) #:max-tokens 5 #:on-token (lambda (_) (abort-to-prompt 'p))))
          (const #f))
        (stream-car (text-stream model '(1 2) #:max-tokens 50)))
      (collect-all!)
      (test-assert (format #f "~a handles before, ~a after" before (live-handles))
        (<= (live-handles) (+ before 4)))
      (test-equal "the library counts the same" (- (live-handles) before) (- (library-handles) of-library))
      (test-equal 5 (length (completion-tokens (generate model '(1 2) #:max-tokens 5)))))))

(define (test-signals path)
  "What a handler of a signal throws while the library computes is thrown when that has returned: a batch whose step was left in the
middle would be busy for ever."
  (let* ((model (load-model path #:context 256))
         (texts (lambda () (text-stream model '(1 2 3) #:max-tokens 20)))
         (right (stream->list (texts)))
         (thrown 0)
         (statuses '()))
    (sigaction SIGALRM (lambda (_) (throw 'alarm)))
    (do ((round 0 (+ round 1))) ((= round 50))
      (let ((stream (texts)))
        (catch 'alarm
          (lambda ()
            (dynamic-wind
              (lambda () (setitimer ITIMER_REAL 0 0 0 (+ 500 (* 97 round))))
              (lambda () (stream-length stream))
              (lambda () (setitimer ITIMER_REAL 0 0 0 0))))
          (lambda _ (set! thrown (+ thrown 1))))
        ;; The stream goes on from where it was left.
        (set! statuses (cons (status-of (lambda () (stream-length stream))) statuses))))
    ;; What was still on its way.
    (catch 'alarm (lambda () (usleep 20000)) (const #f))
    (sigaction SIGALRM SIG_DFL)
    (test-assert "steps were interrupted" (> thrown 0))
    (test-equal "no step was left in the middle" 0 (count (lambda (status) (eq? status 'busy)) statuses))
    (test-equal "the model goes on as before" right (stream->list (texts)))))

(run-tests "model"
  (test-assert (assoc "cpu" (list-devices)))
  (test-equal "reasons to stop of a later library are ends" '(end cancelled unknown unknown)
    (map (@@ (unisonic model) stop-reason) '(0 6 7 -1)))
  (test-equal 'io (status-of (lambda () (load-model "no/such/ファイル.gguf"))))
  (test-assert (string-contains (message-of (lambda () (load-model "no/such/ファイル.gguf"))) "ファイル"))
  (let ((tiny (fixture "llama")))
    (test-generation tiny)
    (test-sharing tiny)
    (test-paths tiny)
    (test-leaks tiny)
    (test-signals tiny))
  (let ((path (smollm2)))
    (when path
      (test-chat path))))
