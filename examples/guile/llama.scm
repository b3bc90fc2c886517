;;; A llama in Scheme: the model is this file, the weights are those of any GGUF file of the architecture.
;;;
;;;   guile -L bindings/guile -L examples/guile -e '(@ (llama) main)' -s examples/guile/llama.scm model.gguf "Once upon a time"
;;;
;;; It gives the tokens and the logits of the built-in model, bit for bit, on every device.

(define-module (llama)
  #:use-module (ice-9 match)
  #:use-module (unisonic graph)
  #:use-module (unisonic model)
  #:use-module (unisonic nn)
  #:use-module (unisonic tensor)
  #:export (hyperparameters layer-count first-layers next-layers logits make-llama decode-greedily main))

(define (hyperparameters weights)
  "The numbers of the model: a procedure from a symbol."
  (define* (number key #:optional default)
    (weights-number weights (string-append "llama." key) (and default (const default))))
  (let* ((heads (number "attention.head_count"))
         (head-len (quotient (number "embedding_length") heads)))
    `((layers . ,(number "block_count"))
      (heads . ,heads)
      (kv-heads . ,(number "attention.head_count_kv" heads))
      (head-len . ,head-len)
      (eps . ,(number "attention.layer_norm_rms_epsilon"))
      (rope-dims . ,(number "rope.dimension_count" head-len))
      (rope-base . ,(number "rope.freq_base" 10000)))))

(define-syntax-rule (of hyper name)
  (assq-ref hyper 'name))

(define (layer-count weights)
  (of (hyperparameters weights) layers))

;;; The model.  Values are rows, one a token; all of this runs once, to record what is done to them.

(define (self-attention hyper table x name)
  (let* ((head-len (of hyper head-len))
         (turned (lambda (part) (rope (linear x (name part)) table head-len))))
    (linear (attention (turned "attn_q") (turned "attn_k") (linear x (name "attn_v"))
                       (kv-cache (of hyper kv-heads) head-len))
            (name "attn_output"))))

(define (feed-forward x name)
  (linear (swiglu (linear x (name "ffn_gate")) (linear x (name "ffn_up")))
          (name "ffn_down")))

(define (layer hyper table x number)
  (define (name part)
    (format #f "blk.~a.~a" number part))
  (define (normed x part)
    (rms-norm x (name part) #:eps (of hyper eps)))
  (let ((x (add x (self-attention hyper table (normed x "attn_norm") name))))
    (add x (feed-forward (normed x "ffn_norm") name))))

(define (next-layers hyper x first last)
  "X after the layers from number FIRST to the one before LAST."
  (let ((table (rope-table #:dims (of hyper rope-dims) #:base (of hyper rope-base)
                           #:factors (and (weight-dims "rope_freqs.weight") "rope_freqs.weight"))))
    (let loop ((x x) (number first))
      (if (< number last)
          (loop (layer hyper table x number) (+ number 1))
          x))))

(define (first-layers hyper tokens last)
  (next-layers hyper (embed tokens "token_embd") 0 last))

(define (logits hyper x)
  "The head, over the rows of which results are asked; it is the embedding table where the file has no other."
  (linear (rms-norm (outputs x) "output_norm" #:eps (of hyper eps))
          (if (weight-dims "output.weight") "output" "token_embd")
          #:head? #t))

(define* (make-llama weights #:rest options)
  "The llama of WEIGHTS, a traced procedure from tokens to logits."
  (let ((hyper (hyperparameters weights)))
    (apply make-traced
           (lambda (tokens)
             (logits hyper (first-layers hyper tokens (of hyper layers))))
           #:weights weights #:name "llama" options)))

;;; Decoding.  What to do with logits is up to Scheme.

(define* (decode-greedily model tokenizer tokens count #:optional (each (const #t)))
  "Up to COUNT tokens after TOKENS, the most likely ones.  EACH is called with the text of each."
  (let ((state (make-state)))
    (let loop ((rows tokens) (chosen '()))
      (if (= (length chosen) count)
          (reverse chosen)
          (let ((token (tensor-argmax (model rows #:state state))))
            (cond ((stop-token? tokenizer token) (reverse chosen))
                  (else (each (decode tokenizer (list token)))
                        (loop (list token) (cons token chosen)))))))))

(define (main arguments)
  (match arguments
    ((_ path prompt)
     (let* ((weights (open-weights path))
            (tokenizer (open-tokenizer path))
            (model (make-llama weights)))
       (display prompt)
       (decode-greedily model tokenizer (encode tokenizer prompt) 100
                        (lambda (text) (display text) (force-output)))
       (newline)))
    ((program _ ...)
     (format (current-error-port) "usage: ~a MODEL.gguf PROMPT~%" program)
     (exit 2))))
