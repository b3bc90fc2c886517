;;; (unisonic model): whole models, from text to text.
;;;
;;; A generation runs step by step: the library is called for one step of the model and returns, and what came of it is handed to
;;; Scheme code afterwards.  So no C function is ever on the stack below a callback of yours, which may raise conditions and leave
;;; through any continuation; handlers of signals, which may do the same, wait until the step is done.  Start reading at `generate'.

(define-module (unisonic model)
  #:use-module (ice-9 match)
  #:use-module (rnrs bytevectors)
  #:use-module (srfi srfi-1)
  #:use-module (srfi srfi-9)
  #:use-module (srfi srfi-11)
  #:use-module (srfi srfi-9 gnu)
  #:use-module (srfi srfi-41)
  #:use-module (system foreign)
  #:use-module (unisonic ffi)
  #:use-module (unisonic tensor)
  #:export (load-model model? model-architecture model-name model-device model-profile model-vocabulary model-context
            open-tokenizer encode decode vocabulary-size stop-token?
            generate completion? completion-text completion-tokens completion-stop
            text-stream producer->stream
            make-chat chat? chat-messages chat-say
            make-session session? session-handle session-append! session-logits session-tokens session-truncate!
            list-devices))

;;; Devices

(define-foreign %device-list-new "unisonic_device_list_new" int32 ('* '* '*))
(define-foreign %device-list-len "unisonic_device_list_len" size_t ('*))
(define-foreign %device-list-get "unisonic_device_list_get" int32 ('* size_t '* '*))
(define-foreign %device-list-free "unisonic_device_list_free" int32 ('*))

(define text-type (list '* size_t))
(define no-text (list %null-pointer 0))
(define device-types (append (make-list 4 text-type) (list uint64)))

(define (text->string text)
  (match text
    ((data len) (if (null-pointer? data) #f (utf8->string (pointer->bytevector data len))))))

(define (list-devices)
  "A list of (NAME HARDWARE PROBLEM) for each device; PROBLEM is #f for one that can be used."
  (let* ((devices (make-handle 'device-list (call/out 'list-devices %device-list-new (the-library))
                               %device-list-free))
         (found (map (lambda (index)
                       (let ((info (c-struct device-types (append (make-list 4 no-text) '(0)))))
                         (call 'list-devices %device-list-get devices index info)
                         (match (read-struct (bytevector->pointer info) device-types)
                           ((name hardware _ problem _) (map text->string (list name hardware problem))))))
                     (iota (%device-list-len (handle-pointer devices))))))
    (close-handle! devices)
    found))

;;; Models

(define-foreign %model-load "unisonic_model_load" int32 ('* '* size_t '* '* '*))
(define-foreign %model-get-info "unisonic_model_get_info" int32 ('* '* '*))
(define-foreign %model-tokenizer "unisonic_model_tokenizer" int32 ('* '* '*))
(define-foreign %model-free "unisonic_model_free" int32 ('*))
(define-foreign %tokenizer-open "unisonic_tokenizer_open" int32 ('* '* size_t '* '*))
(define-foreign %tokenizer-encode "unisonic_tokenizer_encode" int32 ('* '* size_t uint32 '* '*))
(define-foreign %tokenizer-decode "unisonic_tokenizer_decode" int32 ('* '* size_t uint32 '* '*))
(define-foreign %tokenizer-vocab-len "unisonic_tokenizer_vocab_len" uint32 ('*))
(define-foreign %tokenizer-is-stop "unisonic_tokenizer_is_stop" int32 ('* uint32))
(define-foreign %tokenizer-free "unisonic_tokenizer_free" int32 ('*))

(define-record-type <model>
  (make-model handle tokenizer architecture name device profile vocabulary context)
  model?
  (handle model-handle)
  (tokenizer model-tokenizer)
  (architecture model-architecture)
  (name model-name)
  (device model-device)
  (profile model-profile)
  (vocabulary model-vocabulary)
  (context model-context))

(set-record-type-printer! <model>
  (lambda (model port)
    (format port "#<model ~s on ~a>" (model-name model) (model-device model))))

(define load-types
  (append (list '* size_t '* '* '* uint64) (make-list 6 uint32)))

(define info-types
  (append (make-list 5 text-type) (list uint64) (make-list 4 uint32)))

(define* (load-model path #:key (device "cpu") (threads 0) (context 0) (sequences 0) (chunk-rows 0))
  "Loads the model of the GGUF file at PATH on a DEVICE, such as \"cpu\" or \"vulkan:0\"; CONTEXT is the longest sequence, in
tokens.  None of the options changes a bit of a result."
  (let* ((device (string->utf8 device))
         (options (c-struct load-types
                            (list device (bytevector-length device) %null-pointer %null-pointer %null-pointer
                                  0 threads context sequences chunk-rows 0 0)))
         (pointer (retrying (lambda ()
                              (apply call/out 'load-model %model-load (the-library)
                                     (append (text-args path) (list options)))))))
    (keep device)
    (describe (make-handle 'model pointer %model-free))))

(define (describe handle)
  (let ((info (c-struct info-types (append (make-list 5 no-text) (make-list 5 0))))
        (tokenizer (make-handle 'tokenizer (call/out 'load-model %model-tokenizer handle) %tokenizer-free)))
    (call 'load-model %model-get-info handle info)
    (match (read-struct (bytevector->pointer info) info-types)
      ((architecture name device hardware profile parameters vocabulary context trained _)
       (make-model handle tokenizer (text->string architecture) (text->string name) (text->string device)
                   (text->string profile) vocabulary context)))))

;;; Text and tokens

(define (open-tokenizer path)
  "The tokenizer of the model file at PATH, without the model."
  (make-handle 'tokenizer
               (apply call/out 'open-tokenizer %tokenizer-open (the-library) (text-args path))
               %tokenizer-free))

(define (tokenizer-of object)
  (if (model? object) (model-tokenizer object) object))

(define* (encode tokenizer text #:key (prompt? #t) specials?)
  "The token ids of TEXT, a list.  TOKENIZER may be a model.  PROMPT? adds what the model wants in front of a prompt; with SPECIALS?
control tokens that the text spells become those tokens, which is not for texts of others."
  (buffer->tokens
   (apply call/out 'encode %tokenizer-encode (tokenizer-of tokenizer)
          (append (text-args text) (list (+ (if prompt? 1 0) (if specials? 2 0)))))))

(define* (decode tokenizer tokens #:key control?)
  "The text of token ids; with CONTROL?, control tokens are their names."
  (buffer->string
   (apply call/out 'decode %tokenizer-decode (tokenizer-of tokenizer)
          (append (tokens-args tokens) (list (if control? 1 0))))))

(define (vocabulary-size tokenizer)
  "Tokens of the vocabulary."
  (%tokenizer-vocab-len (handle-pointer (tokenizer-of tokenizer))))

(define (stop-token? tokenizer token)
  "Whether an answer ends with TOKEN."
  (= 1 (%tokenizer-is-stop (handle-pointer (tokenizer-of tokenizer)) token)))

;;; Generation

(define-foreign %batch-new "unisonic_batch_new" int32 ('* '* '* '*))
(define-foreign %batch-add "unisonic_batch_add" int32 ('* '* size_t '* '* '*))
(define-foreign %batch-step "unisonic_batch_step" int32 ('* '* '*))
(define-foreign %batch-take "unisonic_batch_take" int32 ('* uint64 '* '*))
(define-foreign %batch-free "unisonic_batch_free" int32 ('*))
(define-foreign %completion-tokens "unisonic_completion_tokens" '* ('*))
(define-foreign %completion-len-tokens "unisonic_completion_len_tokens" size_t ('*))
(define-foreign %completion-text "unisonic_completion_text" '* ('*))
(define-foreign %completion-text-len "unisonic_completion_text_len" size_t ('*))
(define-foreign %completion-stop "unisonic_completion_stop" int32 ('*))
(define-foreign %completion-free "unisonic_completion_free" int32 ('*))

(define-record-type <completion>
  (make-completion text tokens stop)
  completion?
  (text completion-text)
  (tokens completion-tokens)
  ;; end, length, context, constraint, stop-string, callback or cancelled; unknown for what a later library may add
  (stop completion-stop))

(define stops #(end length context constraint stop-string callback cancelled))

(define (stop-reason code)
  (if (< -1 code (vector-length stops)) (vector-ref stops code) 'unknown))

(define sampler-types
  (append (make-list 8 double) (list uint64 '* size_t '* size_t uint32 uint32 int32 uint32)))

(define* (sampler-struct #:key (temperature 0) (top-k 0) (top-p 0) (min-p 0) (typical 0) (top-n-sigma 0)
                         (repeat-penalty 0) (presence-penalty 0) (frequency-penalty 0) (seed 0)
                         schema regex grammar)
  "The options of sampling, and the memory that they point to."
  (let* ((constraint (string->utf8 (or schema regex grammar "")))
         (kind (cond (schema 1) (regex 2) (grammar 3) (else 0))))
    (values
     (c-struct sampler-types
               (append (map exact->inexact
                            (list temperature top-p min-p typical top-n-sigma repeat-penalty presence-penalty
                                  frequency-penalty))
                       (list seed %null-pointer 0
                             (if (zero? (bytevector-length constraint)) %null-pointer constraint)
                             (bytevector-length constraint)
                             kind top-k 0 0)))
     constraint)))

(define generate-types
  (append (list '* '* '* '* size_t '*) (make-list 4 uint32)))

(define event-types
  (list text-type '* size_t uint64 uint32 uint32))

(define no-token #xFFFFFFFF)

;; A generation under way.  The callback only notes what happened, newest first.
(define-record-type <generation>
  (make-generation batch request happened keepsakes)
  generation?
  (batch generation-batch)
  (request generation-request)
  (happened generation-happened)
  (keepsakes generation-keepsakes))

(define (stop-texts stops)
  "An array of texts, and the memory that it points to."
  (let ((bytes (map string->utf8 stops)))
    (values (u8-list->bytevector
             (append-map (lambda (bytes)
                           (bytevector->u8-list
                            (uint-list->bytevector
                             (list (pointer-address (bytevector->pointer bytes)) (bytevector-length bytes))
                             (native-endianness) 8)))
                         bytes))
            bytes)))

(define* (start-generation model prompt #:key (max-tokens 0) (stop '()) (speculation? #t) #:allow-other-keys #:rest options)
  (let*-values (((happened) (make-variable '()))
                ((note) (lambda (user event)
                          (match (read-struct event event-types)
                            ((text _ _ _ token _)
                             (variable-set! happened
                                            (cons (cons token (text->string text)) (variable-ref happened)))))
                          0))
                ((callback) (procedure->pointer int32 note (list '* '*)))
                ((sampler constraint)
                 (apply sampler-struct (without-keywords '(#:max-tokens #:stop #:speculation?) options)))
                ((stop-array stop-bytes) (stop-texts stop))
                ((batch) (make-handle 'batch (call/out 'generate %batch-new (model-handle model) #f) %batch-free))
                ((asked) (c-struct generate-types
                                   (list callback %null-pointer sampler
                                         (if (null? stop) %null-pointer stop-array) (length stop) %null-pointer
                                         max-tokens 0 0 (if speculation? 0 1))))
                ((request) (apply call/value 'generate %batch-add uint64 batch
                                  (append (tokens-args prompt) (list asked)))))
    (keep sampler constraint stop-array stop-bytes)
    (make-generation batch request happened (list callback note))))

(define (without-keywords keywords options)
  (match options
    (() '())
    ((key value rest ...)
     (let ((rest (without-keywords keywords rest)))
       (if (memq key keywords) rest (cons* key value rest))))))

(define (step! generation)
  "Runs a step of the model: whether there is more to do, and what happened, a list of (TOKEN . TEXT)."
  (let* ((more (call-with-blocked-asyncs
                ;; What a handler of a signal throws may not go through the library's frames, which are below the callback.
                (lambda () (call/value 'generate %batch-step uint32 (generation-batch generation)))))
         (happened (generation-happened generation))
         (events (reverse (variable-ref happened))))
    (variable-set! happened '())
    (values (= more 1) events)))

(define (take-completion generation)
  (let* ((pointer (call/out 'generate %batch-take (generation-batch generation) (generation-request generation)))
         (count (%completion-len-tokens pointer))
         (len (%completion-text-len pointer))
         (completion
          (make-completion
           (if (zero? len) "" (utf8->string (pointer->bytevector (%completion-text pointer) len)))
           (if (zero? count)
               '()
               (bytevector->uint-list (pointer->bytevector (%completion-tokens pointer) (* 4 count))
                                      (native-endianness) 4))
           (stop-reason (%completion-stop pointer)))))
    (%completion-free pointer)
    completion))

(define (prompt-tokens model prompt)
  (if (string? prompt) (encode model prompt) prompt))

(define* (generate model prompt #:key on-text on-token #:allow-other-keys #:rest options)
  "Continues PROMPT, a string or token ids; a completion.  ON-TEXT is called with each piece of the text, ON-TOKEN with each token,
as they come.  Other keywords: #:max-tokens; #:stop, a list of strings that end the answer; #:temperature (0, the default, is
greedy), #:top-k, #:top-p, #:min-p, #:typical, #:top-n-sigma, #:repeat-penalty, #:presence-penalty, #:frequency-penalty, #:seed;
#:schema (JSON), #:regex or #:grammar, which the answer follows; #:speculation?.

What a prompt has in common with an earlier one is not computed again.  Both procedures may leave through any continuation, and a
delimited one may be resumed; a generation that nobody can resume is collected."
  (let ((generation (apply start-generation model (prompt-tokens model prompt)
                           (without-keywords '(#:on-text #:on-token) options))))
    (let loop ()
      (let-values (((more? events) (step! generation)))
        (for-each (lambda (event)
                    (when (and on-token (not (= (car event) no-token))) (on-token (car event)))
                    (when (and on-text (not (string-null? (cdr event)))) (on-text (cdr event))))
                  events)
        (if more?
            (loop)
            (let ((completion (take-completion generation)))
              (close-handle! (generation-batch generation))
              completion))))))

(define-stream (lazily thunk)
  (thunk))

(define (producer->stream producer)
  "The lazy stream (SRFI 41) of what PRODUCER, a procedure of one argument, calls its argument with.  It runs as far as the stream is
looked at: in between it is a delimited continuation, and if nobody refers to the rest of the stream it is collected with all that it
holds."
  (define tag (make-prompt-tag "producer"))
  (define (resume thunk)
    (call-with-prompt tag
      (lambda ()
        (thunk)
        stream-null)
      (lambda (continue value)
        (stream-cons value (resume (lambda () (continue #t)))))))
  (lazily (lambda ()
            (resume (lambda ()
                      (producer (lambda (value) (abort-to-prompt tag value))))))))

(define* (text-stream model prompt #:rest options)
  "The answer to PROMPT as a lazy stream of pieces of text.  The model runs when the next piece is looked at and is not there yet; a
step for another generation of the model takes this one further too.  Keywords are those of
`generate'."
  (producer->stream
   (lambda (yield)
     (let ((generation (apply start-generation model (prompt-tokens model prompt) options)))
       (let loop ()
         (let-values (((more? events) (step! generation)))
           (for-each (lambda (event)
                       (unless (string-null? (cdr event)) (yield (cdr event))))
                     events)
           (if more? (loop) (close-handle! (generation-batch generation)))))))))

;;; Sessions, for loops that choose tokens themselves

(define-foreign %session-new "unisonic_session_new" int32 ('* '* '* '*))
(define-foreign %session-append "unisonic_session_append" int32 ('* '* size_t '* '*))
(define-foreign %session-get-logits "unisonic_session_get_logits" int32 ('* '* size_t '*))
(define-foreign %session-get-tokens "unisonic_session_get_tokens" int32 ('* '* '*))
(define-foreign %session-truncate "unisonic_session_truncate" int32 ('* size_t '*))
(define-foreign %session-free "unisonic_session_free" int32 ('*))

(define-record-type <session>
  (%make-session handle vocabulary)
  session?
  (handle session-handle)
  (vocabulary session-vocabulary))

(define (make-session model)
  "An empty sequence of tokens on MODEL."
  (%make-session (make-handle 'session (call/out 'make-session %session-new (model-handle model) #f) %session-free)
                 (model-vocabulary model)))

(define (session-append! session tokens)
  "Runs TOKENS behind those of the session."
  (apply call 'session-append! %session-append (session-handle session)
         (append (tokens-args tokens) (list #f))))

(define (session-logits session)
  "The logits of what may follow the last token: a tensor of one row."
  (let* ((count (session-vocabulary session))
         (logits (make-bytevector (* 4 count))))
    (call 'session-logits %session-get-logits (session-handle session) logits count)
    (make-tensor 'f32 (list 1 count) logits)))

(define (session-tokens session)
  "All tokens, as a list."
  (buffer->tokens (call/out 'session-tokens %session-get-tokens (session-handle session))))

(define (session-truncate! session len)
  "Forgets all tokens past the first LEN."
  (call 'session-truncate! %session-truncate (session-handle session) len))

;;; Conversations

(define-foreign %chat-new "unisonic_chat_new" int32 ('* '* '*))
(define-foreign %chat-add "unisonic_chat_add" int32 ('* '* size_t '* size_t '*))
(define-foreign %chat-encode "unisonic_chat_encode" int32 ('* '* '* '*))
(define-foreign %chat-free "unisonic_chat_free" int32 ('*))

(define-record-type <chat>
  (%make-chat model messages)
  chat?
  (model chat-model)
  ;; Newest first.
  (messages messages-of set-messages!))

(define* (make-chat model #:key system)
  "A conversation with MODEL; SYSTEM says what kind of assistant it is."
  (%make-chat model (if system (list (cons "system" system)) '())))

(define (chat-messages chat)
  "What was said: a list of (ROLE . TEXT), the first first."
  (reverse (messages-of chat)))

(define (chat-tokens chat messages)
  (let* ((tokenizer (model-tokenizer (chat-model chat)))
         (conversation (make-handle 'chat (call/out 'chat-say %chat-new tokenizer) %chat-free)))
    (for-each (match-lambda
                ((role . text)
                 (apply call 'chat-say %chat-add conversation (append (text-args role) (text-args text)))))
              (reverse messages))
    (let ((tokens (buffer->tokens (call/out 'chat-say %chat-encode conversation #f))))
      (close-handle! conversation)
      tokens)))

(define* (chat-say chat text #:rest options)
  "Says TEXT to the model; its answer, a string.  Keywords are those of `generate'.  If the answer does not come to its end, the
conversation is as it was before."
  (let* ((messages (cons (cons "user" text) (messages-of chat)))
         (completion (apply generate (chat-model chat) (chat-tokens chat messages) options))
         (answer (completion-text completion)))
    (set-messages! chat (cons (cons "assistant" answer) messages))
    answer))
