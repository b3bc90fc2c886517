;;; (unisonic graph): graphs node by node, and programs that run them.
;;;
;;; This is the C interface with Scheme's manners.  (unisonic nn) is what models are written with; it makes these graphs.

(define-module (unisonic graph)
  #:use-module (ice-9 match)
  #:use-module (rnrs bytevectors)
  #:use-module (srfi srfi-1)
  #:use-module (srfi srfi-11)
  #:use-module (srfi srfi-9)
  #:use-module (srfi srfi-9 gnu)
  #:use-module (system foreign)
  #:use-module (unisonic ffi)
  #:use-module (unisonic tensor)
  #:export (open-weights make-weights weights? weights-add! weights-shape weights-number weights-text
            make-graph graph? string->graph graph->string
            graph-rope! graph-kv! graph-node! graph-value-width graph-output! graph-verify graph-plan
            load-program program? program-device program-profile program-input-width program-output-width
            program-takes-tokens? program-has-state? program-context program->string
            make-sequence sequence? sequence-length sequence-truncate!
            run-program))

;;; Weights

(define-foreign %weights-open "unisonic_weights_open" int32 ('* '* size_t '* '*))
(define-foreign %weights-add "unisonic_weights_add" int32 ('* '* size_t '* '*))
(define-foreign %weights-shape "unisonic_weights_shape" int32 ('* '* size_t '* size_t '* '*))
(define-foreign %weights-number "unisonic_weights_get_number" int32 ('* '* size_t '* '*))
(define-foreign %weights-text "unisonic_weights_get_text" int32 ('* '* size_t '* '*))
(define-foreign %weights-free "unisonic_weights_free" int32 ('*))

(define (open path)
  (make-handle 'weights
               (apply call/out 'open-weights %weights-open (the-library) (text-args path))
               %weights-free))

(define (open-weights path)
  "The tensors and the metadata of the model file at PATH, a GGUF file; only its head is read."
  (open path))

(define (make-weights)
  "No tensors; `weights-add!' adds some."
  (open #f))

(define (of-kind? object kind)
  (and (handle? object) (eq? (handle-kind object) kind)))

(define (weights? object)
  "Whether OBJECT is what `open-weights' and `make-weights' give."
  (of-kind? object 'weights))

(define (weights-add! weights name tensor)
  "Adds a tensor of f32 under NAME; it goes before one of the file."
  (apply call 'weights-add! %weights-add weights (append (text-args name) (list (tensor-handle tensor)))))

(define (weights-shape weights name)
  "The dimensions of the tensor called NAME, as a list, the length of a row last; #f if there is none."
  (let* ((dims (make-bytevector (* 8 4)))
         (count (apply call/value 'weights-shape %weights-shape size_t weights
                       (append (text-args name) (list dims 4)))))
    (and (> count 0)
         (take (bytevector->uint-list dims (native-endianness) 8) count))))

(define (or-default default thunk)
  (with-exception-handler
      (lambda (condition)
        (if (and default (unisonic-error? condition) (eq? (unisonic-error-status condition) 'unsupported))
            (default)
            (raise-exception condition)))
    thunk
    #:unwind? #t))

(define* (weights-number weights key #:optional default)
  "The number that the metadata of the file has under KEY, exact if it is an integer.  Without one, what the thunk DEFAULT
gives, or a condition."
  (or-default default
              (lambda ()
                (let ((number (apply call/value 'weights-number %weights-number double weights (text-args key))))
                  (if (integer? number) (inexact->exact number) number)))))

(define* (weights-text weights key #:optional default)
  "The text that the metadata of the file has under KEY.  Without one, what the thunk DEFAULT gives, or a condition."
  (or-default default
              (lambda ()
                (buffer->string (apply call/out 'weights-text %weights-text weights (text-args key))))))

;;; Graphs

(define-foreign %graph-new "unisonic_graph_new" int32 ('* '* size_t uint32 uint32 '* '*))
(define-foreign %graph-parse "unisonic_graph_parse" int32 ('* '* size_t '* '*))
(define-foreign %graph-print "unisonic_graph_print" int32 ('* '* '*))
(define-foreign %graph-add-rope "unisonic_graph_add_rope" int32 ('* '* '* '*))
(define-foreign %graph-add-kv "unisonic_graph_add_kv" int32 ('* uint32 uint32 '* '*))
(define-foreign %graph-add-node "unisonic_graph_add_node" int32 ('* '* '* '*))
(define-foreign %graph-value-width "unisonic_graph_value_width" uint32 ('* uint32))
(define-foreign %graph-set-output "unisonic_graph_set_output" int32 ('* uint32 '*))
(define-foreign %graph-verify "unisonic_graph_verify" int32 ('* '*))
(define-foreign %graph-plan "unisonic_graph_plan" int32 ('* '* '* size_t '* '*))
(define-foreign %graph-free "unisonic_graph_free" int32 ('*))

(define* (make-graph name #:key (vocab 1) (context 4096))
  "An empty graph, for token ids below VOCAB and sequences of CONTEXT rows."
  (make-handle 'graph
               (apply call/out 'make-graph %graph-new (the-library)
                      (append (text-args name) (list vocab context)))
               %graph-free))

(define (graph? object)
  "Whether OBJECT is a graph."
  (of-kind? object 'graph))

(define (string->graph text)
  "The graph whose text form is TEXT."
  (make-handle 'graph
               (apply call/out 'string->graph %graph-parse (the-library) (text-args text))
               %graph-free))

(define (graph->string graph)
  "The text form of a graph that is whole."
  (buffer->string (call/out 'graph->string %graph-print graph)))

;; Which tensor a node reads: (NAME ROWS COLS), (NAME LEN) for a vector, and with FIRST and OF behind that a part of one.
(define weight-types (list '* size_t uint32 uint32 uint32 uint32))

(define (weight-values weight)
  "The fields of a weight, and the memory that they point to."
  (match weight
    (#f (values (list %null-pointer 0 0 0 0 0) #f))
    (((? string? name) (? integer? numbers) ...)
     (let ((bytes (string->utf8 name)))
       (values (cons* (bytevector->pointer bytes) (bytevector-length bytes)
                      (match numbers
                        ((len) (list 0 len 0 0))
                        ((rows cols) (list rows cols 0 0))
                        ((rows cols first of) (list rows cols first of))))
               bytes)))))

(define styles '((interleaved . 1) (half-split . 2)))

(define* (graph-rope! graph #:key (style 'interleaved) dims (base 10000.0) (linear 0.0) (yarn 0.0)
                      (original-context 0) (attention-factor 0.0) factors)
  "Adds a position table; its number.  It turns DIMS numbers of a head."
  (let-values (((weight kept) (weight-values factors)))
    (let* ((options (c-struct (append (list double double double double) weight-types
                                      (list uint32 uint32 uint32 uint32))
                              (append (map exact->inexact (list base linear yarn attention-factor)) weight
                                      (list (assq-ref styles style) dims original-context 0))))
           (rope (call/value 'graph-rope! %graph-add-rope uint32 graph options)))
      (keep kept)
      rope)))

(define (graph-kv! graph heads head-len)
  "Adds a cache of keys and values; its number."
  (call/value 'graph-kv! %graph-add-kv uint32 graph heads head-len))

(define operations
  '((tokens . 1) (input . 2) (embed . 3) (embed-positions . 4) (rms-norm . 5) (layer-norm . 6) (head-norm . 7)
    (rope . 8) (linear . 9) (add . 10) (write-kv . 11) (attention . 12) (gate . 13) (gelu . 14)
    (select-outputs . 15) (soft-cap . 16) (route . 17) (expert-linear . 18) (sum-experts . 19) (add-shared . 20)
    (scale . 21)))

(define activations '((#f . 0) (silu . 1) (gelu . 2)))

(define node-types
  (append (list '* size_t '* size_t) weight-types weight-types (list double double)
          (make-list 10 uint32)))

(define* (graph-node! graph operation inputs #:key label weight bias (number 0.0) (soft-cap 0.0) (width 0)
                      (rope 0) (kv 0) (head-len 0) (window 0) activation (chosen 0) head? shares-of-all?)
  "Adds a node; the number of its value.  INPUTS are numbers of values; WEIGHT and BIAS lists of a name and dimensions.  What an
OPERATION takes of the rest is said in unisonic.h, UNISONIC_OP_...."
  (let ((code (or (assq-ref operations operation)
                  (raise-unisonic-error 'graph-node! 'invalid-argument
                                        (format #f "~s is no operation" operation))))
        (label (if label (string->utf8 label) #vu8()))
        (inputs (uint-list->bytevector inputs (native-endianness) 4)))
    (define (address bytes)
      (if (zero? (bytevector-length bytes)) %null-pointer (bytevector->pointer bytes)))
    (let-values (((weight weight-kept) (weight-values weight))
                 ((bias bias-kept) (weight-values bias)))
      (let* ((node (c-struct node-types
                             (append (list (address inputs) (quotient (bytevector-length inputs) 4)
                                           (address label) (bytevector-length label))
                                     weight bias
                                     (map exact->inexact (list number soft-cap))
                                     (list code width rope kv head-len window
                                           (assq-ref activations activation) chosen
                                           (+ (if head? 1 0) (if shares-of-all? 2 0)) 0))))
             (value (call/value 'graph-node! %graph-add-node uint32 graph node)))
        (keep inputs label weight-kept bias-kept)
        value))))

(define (graph-value-width graph value)
  "Numbers of a row of a value."
  (%graph-value-width (handle-pointer graph) value))

(define (graph-output! graph value)
  "Says which value the graph gives: one of output rows."
  (call 'graph-output! %graph-set-output graph value))

(define (graph-verify graph)
  "Holds a graph to all rules; a condition names each broken one and its node."
  (call 'graph-verify %graph-verify graph))

(define (pass-names names)
  (string-join (map (lambda (name) (if (symbol? name) (symbol->string name) name)) names) ","))

(define* (graph-plan graph weights #:key (passes-off '()))
  "What a device would be given for GRAPH, as a string for people."
  (buffer->string (apply call/out 'graph-plan %graph-plan graph weights (text-args (pass-names passes-off)))))

;;; Programs

(define-foreign %program-load "unisonic_program_load" int32 ('* '* '* '* '*))
(define-foreign %program-get-info "unisonic_program_get_info" int32 ('* '* '*))
(define-foreign %program-print "unisonic_program_print" int32 ('* '* '*))
(define-foreign %program-free "unisonic_program_free" int32 ('*))
(define-foreign %sequence-new "unisonic_sequence_new" int32 ('* '* '*))
(define-foreign %sequence-len "unisonic_sequence_len" size_t ('*))
(define-foreign %sequence-truncate "unisonic_sequence_truncate" int32 ('* size_t '*))
(define-foreign %sequence-free "unisonic_sequence_free" int32 ('*))
(define-foreign %program-run "unisonic_program_run" int32 ('* '* '* size_t '* size_t '* '*))

(define-record-type <program>
  (make-program handle device profile input-width output-width takes-tokens? has-state? context)
  program?
  (handle program-handle)
  (device program-device)
  (profile program-profile)
  (input-width program-input-width)
  (output-width program-output-width)
  (takes-tokens? program-takes-tokens?)
  (has-state? program-has-state?)
  (context program-context))

(set-record-type-printer! <program>
  (lambda (program port)
    (format port "#<program on ~a, ~a -> ~a>" (program-device program)
            (cond ((program-input-width program) => identity) (else "tokens"))
            (program-output-width program))))

(define option-types
  (append (list '* size_t '* '* '* '* size_t uint64) (make-list 4 uint32)))

(define* (load-program graph weights #:key (device "cpu") (threads 0) (context 0) (sequences 0) (chunk-rows 0)
                       (passes-off '()))
  "Plans GRAPH and loads it with WEIGHTS on a DEVICE, such as \"cpu\" or \"vulkan:0\".  None of the options changes a bit of a
result."
  (let* ((device (string->utf8 device))
         (off (string->utf8 (pass-names passes-off)))
         (options (c-struct option-types
                            (list device (bytevector-length device) %null-pointer %null-pointer %null-pointer
                                  (if (zero? (bytevector-length off)) %null-pointer off) (bytevector-length off)
                                  0 threads context sequences chunk-rows)))
         (pointer (retrying (lambda () (call/out 'load-program %program-load graph weights options)))))
    (keep device off)
    (describe (make-handle 'program pointer %program-free))))

(define info-types
  (append (make-list 3 (list '* size_t)) (list uint64 uint64) (make-list 4 uint32)))

(define (describe handle)
  (let ((info (c-struct info-types
                        (append (make-list 3 (list %null-pointer 0)) (make-list 6 0)))))
    (call 'load-program %program-get-info handle info)
    (match (read-struct (bytevector->pointer info) info-types)
      ((device hardware profile output-width steps input-width takes-tokens has-state context)
       (make-program handle (text->string device) (text->string profile)
                     (and (> input-width 0) input-width) output-width
                     (= takes-tokens 1) (= has-state 1) context)))))

(define (text->string text)
  (match text
    ((data len) (utf8->string (pointer->bytevector data len)))))

(define (program->string program)
  "The plan of a program, for people."
  (buffer->string (call/out 'program->string %program-print (program-handle program))))

(define (make-sequence program)
  "An empty sequence of rows, for PROGRAM alone."
  (make-handle 'sequence (call/out 'make-sequence %sequence-new (program-handle program)) %sequence-free))

(define (sequence? object)
  "Whether OBJECT is a sequence."
  (of-kind? object 'sequence))

(define (sequence-length sequence)
  "Rows that have been run."
  (%sequence-len (handle-pointer sequence)))

(define (sequence-truncate! sequence len)
  "Forgets all rows of SEQUENCE past the first LEN."
  (call 'sequence-truncate! %sequence-truncate sequence len))

(define* (run-program program #:key sequence (tokens '()) values (first-output 0))
  "Appends rows to SEQUENCE, or to one that is forgotten, and gives a tensor with what PROGRAM makes of those from index
FIRST-OUTPUT on.  TOKENS are ids, VALUES is a tensor of f32 rows: as many of each as the program takes."
  (let ((arguments (append (tokens-args tokens)
                           (list (and values (tensor-handle values)) first-output))))
    (pointer->tensor
     (retrying (lambda ()
                 (apply call/out 'run-program %program-run (program-handle program) sequence arguments))))))
