;;; A conversation with a model.
;;;
;;;   guile -L bindings/guile -e main -s examples/guile/chat.scm model.gguf [DEVICE]

(use-modules (ice-9 exceptions)
             (ice-9 match)
             (ice-9 rdelim)
             (unisonic ffi)
             (unisonic model))

(define (say-and-show chat line)
  (guard (condition ((unisonic-error? condition)
                     (format #t "[~a: ~a]" (unisonic-error-status condition) (exception-message condition))))
    (chat-say chat line #:max-tokens 512 #:on-text (lambda (text) (display text) (force-output))))
  (newline))

(define (talk chat)
  (display "> ")
  (force-output)
  (let ((line (read-line)))
    (cond ((eof-object? line) (newline))
          ((string-null? (string-trim line)) (talk chat))
          (else (say-and-show chat line)
                (talk chat)))))

(define (main arguments)
  (match arguments
    ((_ path . device)
     (let ((model (load-model path #:device (match device ((name) name) (() "cpu")))))
       (format #t "~a on ~a. End with Ctrl-D.~%" (model-name model) (model-device model))
       (talk (make-chat model #:system "You are a helpful assistant."))))
    ((program _ ...)
     (format (current-error-port) "usage: ~a MODEL.gguf [DEVICE]~%" program)
     (exit 2))))
