;;; A decoder that ends early where it is sure enough: the first layers run for every token, the others only where a head over the
;;; first ones hesitates.
;;;
;;;   guile -L bindings/guile -L examples/guile -e '(@ (early-exit) main)' -s examples/guile/early-exit.scm model.gguf "Once upon a time"
;;;
;;; Three traced procedures and a loop between them.  What the loop decides depends on numbers, so it is Scheme; what it calls is
;;; recorded once each.

(define-module (early-exit)
  #:use-module (ice-9 match)
  #:use-module (srfi srfi-1)
  #:use-module (unisonic graph)
  #:use-module (unisonic model)
  #:use-module (unisonic nn)
  #:use-module (unisonic tensor)
  #:use-module (llama)
  #:export (make-decoder decode-early margin main))

(define* (make-decoder weights exit-layer #:rest options)
  "The parts of a llama that can end after EXIT-LAYER layers: a list of three traced procedures, from tokens to hidden rows, from
those to logits at once, and from those through the other layers to logits."
  (let ((hyper (hyperparameters weights))
        (layers (layer-count weights)))
    (define (part name procedure)
      (apply make-traced procedure #:weights weights #:name name options))
    (list (part "first" (lambda (tokens) (outputs (first-layers hyper tokens exit-layer))))
          (part "early-head" (lambda (hidden) (logits hyper hidden)))
          (part "rest" (lambda (hidden) (logits hyper (next-layers hyper hidden exit-layer layers)))))))

(define (margin logits)
  "How far the largest logit is ahead of the next one."
  (let loop ((numbers (tensor->list logits)) (best -inf.0) (second -inf.0))
    (match numbers
      (() (- best second))
      ((number . rest)
       (cond ((> number best) (loop rest number best))
             ((> number second) (loop rest best number))
             (else (loop rest best second)))))))

(define (decode-early decoder tokens count sure?)
  "COUNT tokens after TOKENS, and how many of them came early: where SURE? says so of the early head's logits.

The other layers have not seen the rows of tokens that came early.  They are given them when they are needed next: keys and values
depend on nothing that came later, so nothing is lost but time."
  (match-let (((first early-head rest) decoder)
              (state (make-state)))
    (let loop ((rows tokens) (unseen '()) (chosen '()) (early 0))
      (if (= (length chosen) count)
          (values (reverse chosen) early)
          (let* ((hidden (first rows #:state state #:outputs 'all))
                 (last-row (tensor-rows hidden (- (tensor-row-count hidden) 1) 1))
                 (guess (early-head last-row))
                 (unseen (append unseen (list hidden))))
            (if (sure? guess)
                (let ((token (tensor-argmax guess)))
                  (loop (list token) unseen (cons token chosen) (+ early 1)))
                (let ((token (tensor-argmax (rest (apply tensor-append unseen) #:state state))))
                  (loop (list token) '() (cons token chosen) early))))))))

(define (main arguments)
  (match arguments
    ((_ path prompt)
     (let* ((weights (open-weights path))
            (tokenizer (open-tokenizer path))
            (decoder (make-decoder weights (quotient (* 2 (layer-count weights)) 3))))
       (call-with-values
           (lambda ()
             (decode-early decoder (encode tokenizer prompt) 60 (lambda (guess) (> (margin guess) 4))))
         (lambda (tokens early)
           (format #t "~a~a~%[~a of ~a tokens came early]~%" prompt (decode tokenizer tokens)
                   early (length tokens))))))
    ((program _ ...)
     (format (current-error-port) "usage: ~a MODEL.gguf PROMPT~%" program)
     (exit 2))))
