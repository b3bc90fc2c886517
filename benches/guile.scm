;;; What a token of greedy generation through the Guile modules takes: prints a line of wall and processor seconds for each of five
;;; measurements.  benches/guile.py runs it.
;;;
;;;   guile -L bindings/guile -s benches/guile.scm MODEL.gguf TOKENS THREADS

(use-modules (ice-9 match) (unisonic model))

(define (measure model first tokens)
  "Wall and processor seconds a token after the token FIRST."
  (let* ((count 0)
         (wall (get-internal-real-time))
         (processor (get-internal-run-time)))
    (generate model (list first) #:max-tokens tokens #:speculation? #f
              #:on-token (lambda (_) (set! count (+ count 1))))
    (map (lambda (ticks) (exact->inexact (/ ticks internal-time-units-per-second count)))
         (list (- (get-internal-real-time) wall) (- (get-internal-run-time) processor)))))

(match (command-line)
  ((_ path tokens threads)
   (let ((model (load-model path #:threads (string->number threads) #:context 512))
         (tokens (string->number tokens)))
     ;; One to warm up; then other beginnings, so that nothing of them is there already.
     (measure model 1000 tokens)
     (for-each (lambda (first)
                 (match (measure model first tokens)
                   ((wall processor) (format #t "~a ~a~%" wall processor))))
               '(2000 3000 4000 5000 6000)))))
