;;; (unisonic tensor): numbers with a shape.
;;;
;;; A tensor does not change once it is made.  Its rows lie one after the other; the last dimension is the length of a row.

(define-module (unisonic tensor)
  #:use-module (ice-9 match)
  #:use-module (rnrs bytevectors)
  #:use-module (srfi srfi-1)
  #:use-module (srfi srfi-4)
  #:use-module (srfi srfi-9)
  #:use-module (srfi srfi-9 gnu)
  #:use-module (system foreign)
  #:use-module (unisonic ffi)
  #:export (tensor? make-tensor list->tensor
            tensor-dtype tensor-dims tensor-width tensor-row-count
            tensor-bytes tensor->f32vector tensor->list tensor-ref
            tensor-rows tensor-append tensor-argmax tensor=?
            tensor-handle pointer->tensor))

(define-foreign %new "unisonic_tensor_new" int32 ('* uint32 '* size_t '* size_t '* '*))
(define-foreign %dtype "unisonic_tensor_dtype" uint32 ('*))
(define-foreign %len-dims "unisonic_tensor_len_dims" size_t ('*))
(define-foreign %dim "unisonic_tensor_dim" uint64 ('* size_t))
(define-foreign %len-bytes "unisonic_tensor_len_bytes" size_t ('*))
(define-foreign %read "unisonic_tensor_read" int32 ('* size_t '* size_t '*))
(define-foreign %rows "unisonic_tensor_rows" int32 ('* size_t size_t '* '*))
(define-foreign %argmax "unisonic_tensor_argmax" int32 ('* size_t '* '*))
(define-foreign %free "unisonic_tensor_free" int32 ('*))

(define-record-type <tensor>
  (%make-tensor handle dtype dims)
  tensor?
  (handle tensor-handle)
  (dtype tensor-dtype)
  (dims tensor-dims))

(set-record-type-printer! <tensor>
  (lambda (tensor port)
    (format port "#<tensor ~a ~a>" (tensor-dtype tensor)
            (string-join (map number->string (tensor-dims tensor)) "x"))))

(define dtypes '((f32 . 1) (u32 . 2)))

(define (pointer->tensor pointer)
  "The tensor that a function of the library gave."
  (let* ((code (%dtype pointer))
         (dtype (car (find (lambda (pair) (= (cdr pair) code)) dtypes)))
         (dims (map (lambda (index) (%dim pointer index)) (iota (%len-dims pointer)))))
    (%make-tensor (make-handle 'tensor pointer %free) dtype dims)))

(define (make-tensor dtype dims bytes)
  "A tensor of DTYPE, f32 or u32, with the list DIMS and the numbers in the bytevector BYTES (an f32vector or u32vector is
one), which are copied."
  (let ((code (or (assq-ref dtypes dtype)
                  (raise-unisonic-error 'make-tensor 'invalid-argument
                                        (format #f "~s is neither f32 nor u32" dtype))))
        (c-dims (uint-list->bytevector dims (native-endianness) 8)))
    (pointer->tensor
     (call/out 'make-tensor %new (the-library) code
               c-dims (length dims)
               (if (zero? (bytevector-length bytes)) %null-pointer bytes) (bytevector-length bytes)))))

(define* (list->tensor numbers #:optional dims #:key (dtype 'f32))
  "A tensor of a list of NUMBERS; by default a single row of them, or as many as the list DIMS says."
  (make-tensor dtype
               (or dims (list 1 (length numbers)))
               (match dtype
                 ('u32 (uint-list->bytevector numbers (native-endianness) 4))
                 (_ (list->f32vector numbers)))))

(define (tensor-width tensor)
  "Numbers of a row."
  (last (tensor-dims tensor)))

(define (tensor-row-count tensor)
  "Rows of a tensor."
  (apply * (drop-right (tensor-dims tensor) 1)))

(define (tensor-bytes tensor)
  "The numbers of a tensor in a fresh bytevector."
  (let* ((len (%len-bytes (handle-pointer (tensor-handle tensor))))
         (bytes (make-bytevector len)))
    (unless (zero? len)
      (call 'tensor-bytes %read (tensor-handle tensor) 0 bytes len))
    bytes))

(define (tensor->f32vector tensor)
  "The numbers of a tensor of f32 in a fresh f32vector."
  (list->f32vector (tensor->list tensor)))

(define (tensor->list tensor)
  "The numbers of a tensor, row after row."
  (let ((bytes (tensor-bytes tensor)))
    (match (tensor-dtype tensor)
      ('u32 (bytevector->uint-list bytes (native-endianness) 4))
      ('f32 (map (lambda (index) (bytevector-ieee-single-native-ref bytes (* 4 index)))
                 (iota (quotient (bytevector-length bytes) 4)))))))

(define (tensor-ref tensor row column)
  "One number of a tensor."
  (let ((bytes (make-bytevector 4)))
    (call 'tensor-ref %read (tensor-handle tensor) (* 4 (+ (* row (tensor-width tensor)) column)) bytes 4)
    (match (tensor-dtype tensor)
      ('u32 (bytevector-u32-native-ref bytes 0))
      ('f32 (bytevector-ieee-single-native-ref bytes 0)))))

(define (tensor-rows tensor first len)
  "LEN rows of TENSOR, from row FIRST on, as a tensor."
  (pointer->tensor (call/out 'tensor-rows %rows (tensor-handle tensor) first len)))

(define* (tensor-argmax tensor #:optional (row (- (tensor-row-count tensor) 1)))
  "The index of the largest number of a row, the last one by default, and of equals the lowest."
  (call/value 'tensor-argmax %argmax uint32 (tensor-handle tensor) row))

(define (tensor=? a b)
  "Whether two tensors have the same shape and the same bits."
  (and (eq? (tensor-dtype a) (tensor-dtype b))
       (equal? (tensor-dims a) (tensor-dims b))
       (bytevector=? (tensor-bytes a) (tensor-bytes b))))

(define (tensor-append first . rest)
  "The rows of tensors of one width, one after the other, as a tensor."
  (let* ((tensors (cons first rest))
         (parts (map tensor-bytes tensors))
         (all (make-bytevector (fold + 0 (map bytevector-length parts)))))
    (fold (lambda (part at)
            (bytevector-copy! part 0 all at (bytevector-length part))
            (+ at (bytevector-length part)))
          0 parts)
    (make-tensor (tensor-dtype first)
                 (list (fold + 0 (map tensor-row-count tensors)) (tensor-width first))
                 all)))
