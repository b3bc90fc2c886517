;;; (unisonic nn): models as Scheme procedures.
;;;
;;; A procedure over rows is called once with symbolic values, which record what is done to them: that is tracing.  The graph
;;; that comes of it is planned and loaded on a device; from then on calls run there and no Scheme is involved.  What depends on
;;; numbers (when to stop, which part comes next) stays outside, in procedures that call traced ones.
;;;
;;; Start reading at `define-traced', then `traced-call'.

(define-module (unisonic nn)
  #:use-module (ice-9 match)
  #:use-module (ice-9 threads)
  #:use-module (rnrs bytevectors)
  #:use-module (srfi srfi-1)
  #:use-module (srfi srfi-9)
  #:use-module (srfi srfi-11)
  #:use-module (srfi srfi-9 gnu)
  #:use-module (unisonic ffi)
  #:use-module (unisonic graph)
  #:use-module (unisonic tensor)
  #:export (;; operations
            embed embed-positions rms-norm layer-norm head-norm linear add rope-table rope kv-cache attention
            gated swiglu gelu soft-cap scale outputs width weight-dims
            ;; traced procedures
            define-traced make-traced traced? trace-count traced-graph traced-program
            make-state state? state-length state-truncate! state-close!))

;;; Symbolic values

;; What is being recorded: a graph, and where its tensors come from.
(define-record-type <trace>
  (make-trace graph weights)
  trace?
  (graph trace-graph)
  (weights trace-weights))

(define-record-type <value>
  (make-value trace number)
  value?
  (trace value-trace)
  (number value-number))

(set-record-type-printer! <value>
  (lambda (value port)
    (format port "#<value %~a of ~a>" (value-number value) (width value))))

(define current-trace (make-parameter #f))

(define (the-trace who)
  (or (current-trace)
      (raise-unisonic-error who 'graph "there is nothing to record to: call this in a traced procedure")))

(define (number-in trace who value)
  (unless (value? value)
    (raise-unisonic-error who 'graph (format #f "expected a symbolic value, found ~s" value)))
  (unless (eq? (value-trace value) trace)
    (raise-unisonic-error who 'graph (format #f "~s belongs to another trace" value)))
  (value-number value))

(define (record operation inputs . options)
  "Adds a node to the graph that is being recorded."
  (let ((trace (the-trace operation)))
    (make-value trace
                (apply graph-node! (trace-graph trace) operation
                       (map (lambda (value) (number-in trace operation value)) inputs)
                       options))))

(define (width value)
  "Numbers of a row of a symbolic value."
  (graph-value-width (trace-graph (value-trace value)) (value-number value)))

;;; Weights by name

(define (weight-dims name)
  "The dimensions of the tensor called NAME, the length of a row last; #f if there is none."
  (weights-shape (trace-weights (the-trace 'weight-dims)) name))

(define (weight who name)
  (match (weight-dims name)
    (#f (raise-unisonic-error who 'graph (format #f "there is no tensor `~a`" name)))
    ((len) (list name len))
    ((outer ... cols) (list name (apply * outer) cols))))

(define (named name part)
  (string-append name "." part))

(define (optional-weight who name)
  (and (weight-dims name) (weight who name)))

;;; Operations.  NAME is that of a layer: its tensors are NAME.weight and, where there is one, NAME.bias.

(define* (embed tokens name #:key (scale 0))
  "The rows of an embedding table for TOKENS, times SCALE unless that is 0."
  (record 'embed (list tokens) #:label name #:weight (weight 'embed (named name "weight")) #:number scale))

(define (embed-positions tokens name)
  "The rows of a table of positions."
  (record 'embed-positions (list tokens) #:label name #:weight (weight 'embed-positions (named name "weight"))))

(define* (rms-norm x name #:key (eps 1e-5))
  "RMSNorm of each row."
  (record 'rms-norm (list x) #:label name #:weight (weight 'rms-norm (named name "weight")) #:number eps))

(define* (layer-norm x name #:key (eps 1e-5))
  "LayerNorm of each row."
  (record 'layer-norm (list x) #:label name #:number eps
          #:weight (weight 'layer-norm (named name "weight")) #:bias (weight 'layer-norm (named name "bias"))))

(define* (head-norm x name #:key (eps 1e-5))
  "RMSNorm of each head of each row; the weight is as long as a head."
  (record 'head-norm (list x) #:label name #:weight (weight 'head-norm (named name "weight")) #:number eps))

(define* (linear x name #:key head?)
  "A linear layer, with a bias where there is one.  HEAD? for the last layer of a model, whose rows are logits."
  (record 'linear (list x) #:label name #:head? head?
          #:weight (weight 'linear (named name "weight"))
          #:bias (optional-weight 'linear (named name "bias"))))

(define (add a b)
  "The sum of two values."
  (record 'add (list a b)))

(define (rope-table . options)
  "A position table for `rope': #:style (interleaved or half-split), #:dims, #:base, #:linear, #:yarn and #:original-context,
#:attention-factor, #:factors (the name of a tensor with a divisor a pair)."
  (let* ((graph (trace-graph (the-trace 'rope-table)))
         (factors (and=> (memq #:factors options) cadr)))
    (apply graph-rope! graph
           (append (if (string? factors) (list #:factors (weight 'rope-table factors)) '())
                   (if factors (remove-keyword #:factors options) options)))))

(define (remove-keyword keyword options)
  (match options
    (() '())
    ((key value rest ...)
     (if (eq? key keyword)
         (remove-keyword keyword rest)
         (cons* key value (remove-keyword keyword rest))))))

(define (rope x table head-len)
  "Turns each head of HEAD-LEN numbers by the row's position."
  (record 'rope (list x) #:rope table #:head-len head-len))

(define (kv-cache heads head-len)
  "A cache of keys and values, HEADS of them with HEAD-LEN numbers each, for one attention."
  (graph-kv! (trace-graph (the-trace 'kv-cache)) heads head-len))

(define* (attention q k v cache #:key (scale 0) (window 0) (soft-cap 0) label)
  "Puts the keys K and values V of the rows into CACHE, and attends with the queries Q over all rows up to each one's own.  SCALE
multiplies scores: 1/sqrt(numbers of a head) unless it is given."
  (record 'write-kv (list k v) #:kv cache #:label (or label "kv"))
  (record 'attention (list q) #:kv cache #:number scale #:window window #:soft-cap soft-cap
          #:label (or label "attention")))

(define (gated activation gate up)
  "The function ACTIVATION, silu or gelu, of GATE, times UP."
  (record 'gate (list gate up) #:activation activation))

(define (swiglu gate up)
  "SiLU of GATE, times UP."
  (gated 'silu gate up))

(define (gelu x)
  "GELU, tanh form."
  (record 'gelu (list x)))

(define (soft-cap x bound)
  "BOUND tanh(x / BOUND)."
  (record 'soft-cap (list x) #:number bound))

(define (scale x name)
  "X times the only number of the tensor NAME.weight."
  (record 'scale (list x) #:label name #:weight (weight 'scale (named name "weight"))))

(define (outputs x)
  "The rows of X of which results are asked.  What comes after it is computed for those alone."
  (record 'select-outputs (list x)))

;;; Traced procedures

(define-record-type <traced>
  (%make-traced name procedure weights options graphs programs lock count)
  %traced?
  (name traced-name)
  (procedure traced-procedure)
  (weights traced-weights)
  (options traced-options)
  ;; By the shapes of arguments: a graph.  By those and a device: a program.
  (graphs traced-graphs)
  (programs traced-programs)
  ;; For the tables and the count.  A thread that finds a trace under way waits for what comes of it.
  (lock traced-lock)
  (count traced-count set-traced-count!))

(define (record-of traced)
  (or (procedure-property traced 'unisonic-traced)
      (raise-unisonic-error 'traced 'invalid-argument (format #f "~s is no traced procedure" traced))))

(define (traced? object)
  "Whether OBJECT is a procedure of `make-traced' or `define-traced'."
  (and (procedure? object) (procedure-property object 'unisonic-traced) #t))

(define (trace-count traced)
  "How often the Scheme procedure behind TRACED has been called to record it: once for each shape of its arguments."
  (traced-count (record-of traced)))

(define* (make-traced procedure #:key weights (name "traced") vocab context (device "cpu") (threads 0) (sequences 0)
                      (chunk-rows 0) (passes-off '()))
  "PROCEDURE, a model over symbolic values, as a procedure over rows.  Its arguments are token ids (a list, a vector or a u32
tensor) or a tensor of f32 rows, one of each at most; WEIGHTS has its tensors.

Keywords of the procedure that comes of it: #:state, from `make-state', continues sequences, and without it the rows are a
sequence of their own; #:outputs says which rows are given: last (the default), all, or those from an index on; #:device
where to run.  Called with symbolic values it becomes part of the graph that is being recorded."
  (let* ((options (list #:threads threads #:context (or context 0) #:sequences sequences #:chunk-rows chunk-rows
                        #:passes-off passes-off))
         (record (%make-traced name procedure weights (list vocab context options)
                               (make-hash-table) (make-hash-table) (make-recursive-mutex) 0)))
    (define* (run #:key state (outputs 'last) (device device) #:rest arguments)
      (let ((rows (take-while (negate keyword?) arguments)))
        (if (any value? rows)
            (apply procedure rows)
            (traced-call record rows state outputs device))))
    (set-procedure-property! run 'name (string->symbol name))
    (set-procedure-property! run 'unisonic-traced record)
    run))

(define-syntax define-traced
  (lambda (form)
    "(define-traced (NAME ARGUMENT ...) KEYWORD VALUE ... BODY ...) defines NAME as `make-traced' of a procedure with that body,
with these keywords."
    (define (split forms)
      (syntax-case forms ()
        ((keyword value . rest)
         (keyword? (syntax->datum #'keyword))
         (let-values (((options body) (split #'rest)))
           (values (cons* #'keyword #'value options) body)))
        (body (values '() #'body))))
    (syntax-case form ()
      ((_ (name argument ...) . rest)
       (let-values (((options body) (split #'rest)))
         (with-syntax (((option ...) options) (body body))
           #'(define name
               (make-traced (lambda (argument ...) . body)
                            #:name (symbol->string 'name) option ...))))))))

(define (traced-call record rows state outputs device)
  "Runs concrete ROWS."
  (let* ((shapes (map shape-of rows))
         (program (program-for record shapes device))
         (tokens (or (find-map tokens-of rows) '()))
         (values (find rows-tensor? rows))
         (count (if values (tensor-row-count values) (tokens-length tokens))))
    (run-program program
                 #:sequence (and state (program-has-state? program) (state-sequence state record program))
                 #:tokens tokens
                 #:values values
                 #:first-output (match outputs
                                  ('last (max 0 (- count 1)))
                                  ('all 0)
                                  ((? integer? first) first)))))

(define (find-map procedure list)
  (any procedure list))

(define (rows-tensor? object)
  (and (tensor? object) (eq? (tensor-dtype object) 'f32)))

(define (tokens-of argument)
  (cond ((rows-tensor? argument) #f)
        ((tensor? argument) (tensor-bytes argument))
        (else argument)))

(define (tokens-length tokens)
  (cond ((bytevector? tokens) (quotient (bytevector-length tokens) 4))
        ((vector? tokens) (vector-length tokens))
        (else (length tokens))))

(define (shape-of argument)
  "What of an argument a graph depends on; how many rows there are is no part of it."
  (cond ((rows-tensor? argument) (tensor-width argument))
        ((or (list? argument) (vector? argument) (tensor? argument)) 'tokens)
        (else (raise-unisonic-error 'traced 'invalid-argument
                                    (format #f "expected token ids or a tensor, found ~s" argument)))))

;;; Tracing

(define (program-for record shapes device)
  (with-mutex (traced-lock record)
    (let ((key (cons device shapes)))
      (or (hash-ref (traced-programs record) key)
          (let ((program (apply load-program (graph-for record shapes) (traced-weights record)
                                #:device device (last (traced-options record)))))
            (hash-set! (traced-programs record) key program)
            program)))))

(define (graph-for record shapes)
  (with-mutex (traced-lock record)
    (or (hash-ref (traced-graphs record) shapes)
        (let ((graph (trace record shapes)))
          (hash-set! (traced-graphs record) shapes graph)
          graph))))

(define (trace record shapes)
  "Calls the procedure once with symbolic values, and gives the graph that was recorded."
  (set-traced-count! record (+ 1 (traced-count record)))
  (match-let* (((vocab context _) (traced-options record))
               (weights (traced-weights record))
               (graph (make-graph (traced-name record)
                                  #:vocab (or vocab (vocabulary weights))
                                  #:context (or context (context-of weights))))
               (trace (make-trace graph weights)))
    (define (argument shape)
      (make-value trace (match shape
                          ('tokens (graph-node! graph 'tokens '()))
                          (width (graph-node! graph 'input '() #:width width)))))
    (let ((result (parameterize ((current-trace trace))
                    (apply (traced-procedure record) (map argument shapes)))))
      (graph-output! graph (number-in trace (string->symbol (traced-name record)) result))
      graph)))

(define (vocabulary weights)
  "Tokens of the vocabulary: the rows of the embedding table; 1 where there is none."
  (match (weights-shape weights "token_embd.weight")
    ((rows _) rows)
    (_ 1)))

(define (context-of weights)
  (let ((architecture (weights-text weights "general.architecture" (const #f))))
    (if architecture
        (weights-number weights (string-append architecture ".context_length") (const 4096))
        4096)))

(define* (traced-graph traced #:rest shapes)
  "The graph of TRACED for arguments of SHAPES: the symbol tokens, or the width of rows.  It is recorded if it was not."
  (graph-for (record-of traced) shapes))

(define* (traced-program traced #:key (device "cpu") #:rest shapes)
  "The program of TRACED for arguments of SHAPES on a device."
  (program-for (record-of traced) (take-while (negate keyword?) shapes) device))

;;; State

;; The sequences of some programs that belong together; #f when it has been closed.
(define-record-type <state>
  (%make-state sequences)
  state?
  (sequences %state-sequences set-state-sequences!))

(define (make-state)
  "An empty state: what traced procedures remember of the rows that they were given with it.  One state serves any number of
traced procedures; each has a sequence of its own in it."
  (%make-state (make-hash-table)))

(define (state-sequences state)
  (or (%state-sequences state)
      (raise-unisonic-error 'state 'invalid-handle "the state has been closed")))

(define (state-close! state)
  "Frees what STATE holds on devices now, not when it is collected; a second time does nothing."
  (let ((sequences (%state-sequences state)))
    (when sequences
      (set-state-sequences! state #f)
      (hash-for-each (lambda (_ sequence) (close-handle! sequence)) sequences))))

(define (state-sequence state record program)
  "The sequence of PROGRAM, one of those of RECORD, in STATE.  What another one of them computed is of no use to it."
  (for-each (match-lambda
              ((key . other)
               (let ((sequence (hashq-ref (state-sequences state) other)))
                 (when (and sequence (not (eq? other program)) (> (sequence-length sequence) 0))
                   (raise-elsewhere (traced-name record) key)))))
            (programs-of record))
  (or (hashq-ref (state-sequences state) program)
      (let ((sequence (make-sequence program)))
        (hashq-set! (state-sequences state) program sequence)
        sequence)))

(define (raise-elsewhere name key)
  (match-let (((device . shapes) key))
    (raise-unisonic-error
     (string->symbol name) 'invalid-argument
     (format #f "the state has rows of `~a` for ~a on ~a and goes on there alone: give another state, or truncate this one to 0 rows"
             name (string-join (map object->string shapes) ", ") device))))

(define (programs-of record)
  "A list of ((DEVICE . SHAPES) . PROGRAM)."
  (with-mutex (traced-lock record)
    (hash-map->list cons (traced-programs record))))

(define (sequences-of state traced)
  (let ((sequences (state-sequences state)))
    (filter-map (match-lambda ((_ . program) (hashq-ref sequences program)))
                (programs-of (record-of traced)))))

(define (state-length state traced)
  "How many rows TRACED has been given with STATE."
  (fold max 0 (map sequence-length (sequences-of state traced))))

(define (state-truncate! state traced len)
  "Makes TRACED forget the rows of STATE past the first LEN."
  (for-each (lambda (sequence)
              (when (> (sequence-length sequence) len)
                (sequence-truncate! sequence len)))
            (sequences-of state traced)))
