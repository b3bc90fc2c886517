;;; Seconds a token of greedy generation through the Guile modules: prints one number.  benches/guile.py runs it.
;;;
;;;   guile -L bindings/guile -s benches/guile.scm MODEL.gguf TOKENS THREADS

(use-modules (ice-9 match) (unisonic model))

(define (seconds thunk)
  (let ((start (get-internal-real-time)))
    (thunk)
    (/ (- (get-internal-real-time) start) (exact->inexact internal-time-units-per-second))))

(define (measure model first tokens)
  "Seconds a token after the token FIRST."
  (let* ((count 0)
         (seconds (seconds (lambda ()
                             (generate model (list first) #:max-tokens tokens #:speculation? #f
                                       #:on-token (lambda (_) (set! count (+ count 1))))))))
    (/ seconds count)))

(match (command-line)
  ((_ path tokens threads)
   (let ((model (load-model path #:threads (string->number threads) #:context 512))
         (tokens (string->number tokens)))
     ;; One to warm up; then another beginning, so that nothing of it is there already.
     (measure model 1000 tokens)
     (display (measure model 2000 tokens))
     (newline))))
