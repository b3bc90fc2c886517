;;; Whole models: generation with callbacks, as a stream, and through continuations.

(use-modules (ice-9 control) (ice-9 match) (srfi srfi-1) (srfi srfi-41) (srfi srfi-64)
             (tests common) (unisonic ffi) (unisonic model))

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
    (let ((before (live-handles)))
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
      (test-equal 5 (length (completion-tokens (generate model '(1 2) #:max-tokens 5)))))))

(run-tests "model"
  (test-assert (assoc "cpu" (list-devices)))
  (test-equal 'io (status-of (lambda () (load-model "no/such/ファイル.gguf"))))
  (test-assert (string-contains (message-of (lambda () (load-model "no/such/ファイル.gguf"))) "ファイル"))
  (let ((tiny (fixture "llama")))
    (when tiny
      (test-generation tiny)
      (test-leaks tiny)))
  (let ((path (smollm2)))
    (when path
      (test-chat path))))
