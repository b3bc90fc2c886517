;;; Graphs by hand: rules, the text form, plans, programs.

(use-modules (srfi srfi-4) (srfi srfi-64) (tests common) (unisonic ffi) (unisonic graph) (unisonic tensor))

(define (weights-of . tensors)
  (let ((weights (make-weights)))
    (for-each (lambda (entry) (weights-add! weights (car entry) (list->tensor (cddr entry) (cadr entry)))) tensors)
    weights))

;; x + W norm(x), for rows of 4; with HEAD?, a head beside it that nobody reads.
(define* (residual #:key head?)
  (let* ((graph (make-graph "residual"))
         (x (graph-node! graph 'input '() #:width 4 #:label "x"))
         (normed (graph-node! graph 'rms-norm (list x) #:weight '("n" 4) #:number 1e-6 #:label "norm"))
         (unused (and head? (graph-node! graph 'linear (list normed) #:weight '("h" 2 4) #:label "head")))
         (block (graph-node! graph 'linear (list normed) #:weight '("w" 4 4) #:label "block"))
         (sum (graph-node! graph 'add (list x block) #:label "sum")))
    (graph-output! graph (graph-node! graph 'select-outputs (list sum) #:label "select"))
    graph))

(define weights
  (weights-of '("n" (4) 1 1 1 1)
              '("h" (2 4) 1 2 3 4 5 6 7 8)
              '("w" (4 4) 1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1)))

(run-tests "graph"
  (test-equal '(2 4) (weights-shape weights "h"))
  (test-equal #f (weights-shape weights "absent"))
  (test-equal 'unsupported (status-of (lambda () (weights-text weights "general.name"))))
  (test-equal 7 (weights-number weights "general.name" (const 7)))
  (test-equal 'invalid-argument (status-of (lambda () (weights-add! weights "n" (list->tensor '(1))))))

  ;; The text form says all there is.
  (let ((text (graph->string (residual))))
    (test-assert (string-contains text "input() label=x"))
    (test-equal text (graph->string (string->graph text)))
    (test-equal "line 1: expected `graph ARCHITECTURE …`" (message-of (lambda () (string->graph "what?")))))

  ;; A wrong node is refused where it is added, by name.
  (let ((graph (make-graph "wrong")))
    (define x (graph-node! graph 'input '() #:width 4))
    (define (add-node! . arguments) (lambda () (apply graph-node! graph arguments)))
    (test-equal 'graph (status-of (add-node! 'linear (list x) #:weight '("w" 4 5) #:label "too-wide")))
    (test-assert (string-contains (message-of (add-node! 'linear (list x) #:weight '("w" 4 5) #:label "too-wide"))
                                  "x must be f32[5] or a16[5]"))
    (test-assert (string-contains (message-of (add-node! 'linear (list x) #:weight '("w" 4 5) #:label "too-wide"))
                                  "label=too-wide"))
    (test-equal 'graph (status-of (add-node! 'add (list x 99))))
    (test-equal 'graph (status-of (add-node! 'input '() #:width 4)))
    (test-equal 'invalid-argument (status-of (add-node! 'linear (list x))))
    (test-equal 'invalid-argument (status-of (add-node! 'convolve (list x))))
    (test-equal 'graph (status-of (lambda () (graph-verify graph))))
    (graph-output! graph x)
    (test-assert (string-contains (message-of (lambda () (graph-verify graph))) "must be f32 output rows")))

  ;; What nobody reads is no part of a plan; switches of passes are.
  (let ((plan (graph-plan (residual) weights)))
    (test-equal plan (graph-plan (residual #:head? #t) weights))
    (test-assert (not (string=? plan (graph-plan (residual) weights #:passes-off '(fuse-residual)))))
    (test-equal 'graph (status-of (lambda () (graph-plan (residual) weights #:passes-off '(no-such-pass))))))
  (test-assert (string-contains
                (message-of (lambda () (graph-plan (residual) (weights-of '("n" (4) 1 1 1 1)))))
                "`block` needs the tensor `w` as [4x4], but there is none"))

  ;; The same bits on every device, whatever passes ran and however many rows come at once.
  (let* ((rows (list->tensor (map (lambda (n) (- (* 0.37 n) 9)) (iota 48)) '(12 4)))
         (run (lambda* (device #:rest options)
                (run-program (apply load-program (residual) weights #:device device options) #:values rows)))
         (right (run "cpu-scalar")))
    (test-equal '(12 4) (tensor-dims right))
    (test-assert (tensor=? right (run "cpu")))
    (test-assert (tensor=? right (run "cpu" #:chunk-rows 5)))
    (test-assert (tensor=? right (run "cpu" #:passes-off '(fuse-residual fuse-norm-quantize)))))
  (let ((program (load-program (residual) weights)))
    (test-equal '(4 4 #f #f) (list (program-input-width program) (program-output-width program)
                                   (program-takes-tokens? program) (program-has-state? program)))
    (test-equal '(0 4) (tensor-dims (run-program program #:values (list->tensor '(1 2 3 4)) #:first-output 1)))
    (test-equal 'invalid-argument (status-of (lambda () (run-program program #:tokens '(1 2)))))
    (test-equal 'invalid-argument (status-of (lambda () (run-program program #:values (list->tensor '(1 2 3))))))
    (test-assert (string-contains
                  (message-of (lambda () (run-program program #:values (list->tensor (list 1 +nan.0 3 4)))))
                  "row 0: value 1 is NaN")))
  (test-equal 'invalid-argument (status-of (lambda () (load-program (residual) weights #:device "abacus")))))
