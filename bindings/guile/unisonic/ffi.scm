;;; (unisonic ffi): the shared library as Scheme sees it.
;;;
;;; Everything that the other modules share is here: finding the library, calling its functions, conditions for its errors,
;;; and handles that are freed when nothing refers to them any more.  Start reading at `define-foreign', then `call'.

(define-module (unisonic ffi)
  #:use-module (ice-9 control)
  #:use-module (ice-9 exceptions)
  #:use-module (ice-9 iconv)
  #:use-module (ice-9 match)
  #:use-module (ice-9 threads)
  #:use-module (rnrs bytevectors)
  #:use-module (srfi srfi-9)
  #:use-module (srfi srfi-9 gnu)
  #:use-module (system foreign)
  #:use-module (system foreign-library)
  #:export (define-foreign
            call call/out call/value retrying keep
            &unisonic-error unisonic-error? unisonic-error-status raise-unisonic-error
            handle? handle-pointer handle-kind handle-open? make-handle close-handle!
            live-handles collect-handles!
            the-library library-version library-handles
            text-args tokens-args buffer->bytevector buffer->string buffer->tokens
            c-struct read-struct struct-size))

;;; The library

(define (open-library)
  "The shared library: the file that the environment variable UNISONIC_LIBRARY names, or the one that the system's
loader finds."
  (let ((named (getenv "UNISONIC_LIBRARY")))
    (if named
        (load-foreign-library named)
        (or (false-if-exception (load-foreign-library "libunisonic"))
            (false-if-exception (load-foreign-library "libunisonic.so.0"))
            (error "libunisonic.so was not found: install it, or name it in the environment variable UNISONIC_LIBRARY")))))

(define shared-library (open-library))

(define-syntax-rule (define-foreign name c-name result (arg ...))
  "Defines NAME as the function C-NAME of the library."
  (define name
    (foreign-library-function shared-library c-name
                              #:return-type result #:arg-types (list arg ...))))

;;; Errors

(define-exception-type &unisonic-error &error
  make-unisonic-error unisonic-error?
  (status unisonic-error-status))

(define statuses
  #(ok invalid-argument invalid-handle version io model device out-of-memory context-full busy cancelled
       callback-failed unsupported mismatch graph internal))

(define-foreign %error-message "unisonic_error_message" '* ('*))
(define-foreign %error-message-len "unisonic_error_message_len" size_t ('*))
(define-foreign %error-free "unisonic_error_free" void ('*))

(define (raise-unisonic-error who status message)
  "Raises a condition with the symbol STATUS and a MESSAGE, as of the procedure WHO."
  (raise-exception
   (make-exception (make-unisonic-error status)
                   (make-exception-with-origin who)
                   (make-exception-with-message message)
                   (make-exception-with-irritants '()))))

(define (raise-status who status error)
  (let* ((len (%error-message-len error))
         (message (if (zero? len)
                      "the library says no more"
                      (utf8->string (pointer->bytevector (%error-message error) len)))))
    (%error-free error)
    (raise-unisonic-error who
                          (if (< -1 status (vector-length statuses)) (vector-ref statuses status) 'unknown)
                          message)))

;;; Handles

;; For what all threads share: the count of handles, whether one is open, the library.  The hook of the garbage collector closes
;; handles in whatever thread it runs, so it may not run in one that is here.
(define shared (make-recursive-mutex))

(define-syntax-rule (locked body ...)
  (call-with-blocked-asyncs
   (lambda ()
     (with-mutex shared body ...))))

(define-record-type <handle>
  (%make-handle kind pointer free)
  handle?
  (kind handle-kind)
  (pointer %handle-pointer set-handle-pointer!)
  (free handle-free))

(set-record-type-printer! <handle>
  (lambda (handle port)
    (format port "#<unisonic ~a~a>" (handle-kind handle) (if (handle-open? handle) "" " (closed)"))))

(define unreachable (make-guardian))
(define live 0)

(define (make-handle kind pointer free)
  "A handle of the library as a Scheme object: the function FREE is called when nothing refers to it any more, or by
`close-handle!'.  KIND, a symbol, is for people."
  (let ((handle (%make-handle kind pointer free)))
    (locked
     (set! live (+ live 1))
     (unreachable handle))
    handle))

(define (handle-open? handle)
  "Whether HANDLE has not been closed."
  (and (%handle-pointer handle) #t))

(define (handle-pointer handle)
  (or (%handle-pointer handle)
      (raise-unisonic-error 'handle-pointer 'invalid-handle
                            (format #f "the ~a has been closed" (handle-kind handle)))))

(define (close-handle! handle)
  "Frees what is behind HANDLE now; a second time does nothing."
  (let ((pointer (locked
                  (let ((pointer (%handle-pointer handle)))
                    (when pointer
                      (set-handle-pointer! handle #f)
                      (set! live (- live 1)))
                    pointer))))
    (when pointer
      ((handle-free handle) pointer))))

(define (live-handles)
  "How many handles have not been freed."
  live)

(define (collect-handles!)
  "Frees the handles that the garbage collector found to be unreachable.  It is called after each collection."
  (let loop ()
    (let ((handle (locked (unreachable))))
      (when handle
        (close-handle! handle)
        (loop)))))

(add-hook! after-gc-hook collect-handles!)

;;; Calls

(define (pointer-cell)
  (make-bytevector (sizeof '*) 0))

(define (cell-pointer cell)
  (make-pointer (bytevector-uint-ref cell 0 (native-endianness) (sizeof '*))))

(define kept #f)

(define (keep . objects)
  "Does nothing with OBJECTS but being called after what needs them: until then they are not collected."
  (set! kept objects)
  (set! kept #f))

(define (argument->c who argument)
  ;; Guile 3.0.8 ends the process over a number that does not fit 64 bits.
  (when (and (exact-integer? argument) (not (< -1 argument (ash 1 64))))
    (raise-unisonic-error who 'invalid-argument
                          (format #f "~a is given, but numbers are 0 to 2^64 - 1" argument)))
  (cond ((handle? argument) (handle-pointer argument))
        ((bytevector? argument) (bytevector->pointer argument))
        ((not argument) %null-pointer)
        (else argument)))

(define (call who function . arguments)
  "Calls FUNCTION, which returns a status and has a place for an error behind ARGUMENTS.  Handles, bytevectors and #f
among these go as pointers.  A failure is a condition."
  (let* ((cell (pointer-cell))
         (status (apply function (append (map (lambda (argument) (argument->c who argument)) arguments)
                                         (list (bytevector->pointer cell))))))
    (keep arguments cell)
    (unless (zero? status)
      (raise-status who status (cell-pointer cell)))))

(define (call/out who function . arguments)
  "As `call', for a FUNCTION that has a place for a pointer before that for the error; what it puts there."
  (let ((out (pointer-cell)))
    (apply call who function (append arguments (list out)))
    (cell-pointer out)))

(define (call/value who function type . arguments)
  "As `call/out', for a number of the foreign TYPE."
  (let ((out (make-bytevector 8 0)))
    (apply call who function (append arguments (list out)))
    (car (parse-c-struct (bytevector->pointer out) (list type)))))

(define (out-of-memory? condition)
  (and (unisonic-error? condition) (eq? (unisonic-error-status condition) 'out-of-memory)))

(define (collect-garbage!)
  "Collects garbage and frees the handles in it.  Guile's finalizer thread hands them over: it is given time, twice."
  (do ((round 0 (+ round 1))) ((= round 2))
    (gc)
    (usleep 2000)
    (collect-handles!)))

(define (retrying thunk)
  "Calls THUNK.  If memory is short, which handles may hold that nothing refers to any more, frees those and calls it once more."
  (let ((result (let/ec return
                  (with-exception-handler
                      (lambda (condition)
                        (if (out-of-memory? condition) (return out-of-memory?) (raise-exception condition)))
                    thunk))))
    (cond ((eq? result out-of-memory?) (collect-garbage!) (thunk))
          (else result))))

(define (text-args text)
  "The two arguments of a text: its bytes and how many; of #f, none."
  (let ((bytes (if text (string->utf8 text) #vu8())))
    (list (if (zero? (bytevector-length bytes)) %null-pointer bytes)
          (bytevector-length bytes))))

(define (tokens-args tokens)
  "The two arguments of token ids, a list, a vector or a u32vector: their memory and how many."
  (let* ((tokens (match tokens
                   ((? bytevector?) tokens)
                   ((? vector?) (list->tokens (vector->list tokens)))
                   (_ (list->tokens tokens))))
         (len (quotient (bytevector-length tokens) 4)))
    (list (if (zero? len) %null-pointer tokens) len)))

(define (list->tokens tokens)
  (for-each (lambda (token)
              (unless (and (exact-integer? token) (<= 0 token #xFFFFFFFF))
                (raise-unisonic-error 'tokens 'invalid-argument (format #f "~s is no token id" token))))
            tokens)
  (uint-list->bytevector tokens (native-endianness) 4))

;;; Structs with a size in front

(define (c-struct types values)
  "A struct of TYPES behind its size, as a bytevector.  VALUES may be bytevectors, whose addresses it then has: `keep' them."
  (let* ((types (cons size_t types))
         (values (cons (sizeof types)
                       (map (lambda (value) (if (bytevector? value) (bytevector->pointer value) value))
                            values))))
    (bytevector-copy (pointer->bytevector (make-c-struct types values) (sizeof types)))))

(define (struct-size types)
  (sizeof (cons size_t types)))

(define (read-struct pointer types)
  "The values of a struct of TYPES behind its size."
  (cdr (parse-c-struct pointer (cons size_t types))))

;;; The library handle

(define-foreign %abi-version "unisonic_abi_version" uint32 ())
(define-foreign %version "unisonic_version" '* ())
(define-foreign %library-open "unisonic_library_open" int32 (uint32 '* '* '*))
(define-foreign %library-close "unisonic_library_close" int32 ('*))

;; Of the ABI that these modules are written for.
(define abi-version 1)

(define (library-version)
  "The version of the library, a string."
  (pointer->string (%version)))

(define-foreign %library-len-handles "unisonic_library_len_handles" size_t ('*))

(define the-library
  (let ((library #f))
    (lambda ()
      "The library handle of this process; it is opened at the first call."
      (locked
       (unless library
         (set! library
               (make-handle 'library
                            (call/out 'the-library %library-open abi-version #f)
                            %library-close)))
       library))))

(define (library-handles)
  "How many handles the library counts: those of `live-handles' and what its objects are made of."
  (%library-len-handles (handle-pointer (the-library))))

;;; Buffers

(define-foreign %buffer-data "unisonic_buffer_data" '* ('*))
(define-foreign %buffer-len-bytes "unisonic_buffer_len_bytes" size_t ('*))
(define-foreign %buffer-tokens "unisonic_buffer_tokens" '* ('*))
(define-foreign %buffer-len-tokens "unisonic_buffer_len_tokens" size_t ('*))
(define-foreign %buffer-free "unisonic_buffer_free" int32 ('*))

(define (copy-and-free buffer data len-bytes)
  (let ((copy (if (zero? len-bytes)
                  (make-bytevector 0)
                  (bytevector-copy (pointer->bytevector (data buffer) len-bytes)))))
    (%buffer-free buffer)
    copy))

(define (buffer->bytevector buffer)
  "The bytes of a buffer, which is freed."
  (copy-and-free buffer %buffer-data (%buffer-len-bytes buffer)))

(define (buffer->string buffer)
  "The text of a buffer, which is freed; bytes that are no UTF-8 become U+FFFD."
  (bytevector->string (buffer->bytevector buffer) "UTF-8" 'substitute))

(define (buffer->tokens buffer)
  "The token ids of a buffer, which is freed, as a list."
  (let ((bytes (copy-and-free buffer %buffer-tokens (* 4 (%buffer-len-tokens buffer)))))
    (bytevector->uint-list bytes (native-endianness) 4)))
