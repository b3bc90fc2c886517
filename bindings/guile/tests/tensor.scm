;;; Tensors keep their shape and their bits.

(use-modules (srfi srfi-4) (srfi srfi-64) (tests common) (unisonic ffi) (unisonic tensor))

(run-tests "tensor"
  (let ((tensor (make-tensor 'f32 '(2 3) (f32vector 1 2.5 -3 4 5 1e-40))))
    (test-equal '(2 3) (tensor-dims tensor))
    (test-equal 'f32 (tensor-dtype tensor))
    (test-equal '(3 2) (list (tensor-width tensor) (tensor-row-count tensor)))
    (test-equal '(1.0 2.5 -3.0) (list-head (tensor->list tensor) 3))
    (test-equal 5.0 (tensor-ref tensor 1 1))
    (test-equal '(4.0 5.0) (list-head (tensor->list (tensor-rows tensor 1 1)) 2))
    (test-equal 1 (tensor-argmax tensor))
    (test-equal 1 (tensor-argmax tensor 0))
    (test-assert (tensor=? tensor (tensor-append (tensor-rows tensor 0 1) (tensor-rows tensor 1 1))))
    (test-assert (not (tensor=? tensor (tensor-rows tensor 0 1)))))
  (test-equal '(7 8 9) (tensor->list (list->tensor '(7 8 9) #:dtype 'u32)))
  (test-equal '(0 3) (tensor-dims (list->tensor '() '(0 3))))
  (test-equal 'invalid-argument (status-of (lambda () (list->tensor '(1 2 3) '(2 2)))))
  (test-equal 'invalid-argument (status-of (lambda () (make-tensor 'f16 '(1) (f32vector 1)))))
  (test-equal 'invalid-argument (status-of (lambda () (tensor-rows (list->tensor '(1 2)) 1 1))))
  ;; Numbers that no C parameter holds.
  (for-each (lambda (number)
              (test-equal 'invalid-argument
                (status-of (lambda () (tensor-rows (list->tensor '(1 2)) 0 number))))
              (test-equal 'invalid-argument
                (status-of (lambda () (tensor-argmax (list->tensor '(1 2)) number)))))
            (list -1 (ash 1 64) (- (ash 1 70))))
  (test-equal "row 7, but the tensor has 1" (message-of (lambda () (tensor-argmax (list->tensor '(1 2)) 7))))
  (let ((tensor (list->tensor '(1))))
    (close-handle! (tensor-handle tensor))
    (close-handle! (tensor-handle tensor))
    (test-equal 'invalid-handle (status-of (lambda () (tensor->list tensor))))))
