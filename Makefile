# The two commands: `make run` and `make test`. `make help` lists the others.

MODEL ?= models/smollm2-135m-instruct-q4_1.gguf
PROMPT ?= What is the capital of France?
MAX_TOKENS ?= 128

# The recipe reads these from the environment, and make does not expand them, so that quotes and dollars in a prompt stay.
override PROMPT := $(value PROMPT)
export MODEL PROMPT MAX_TOKENS

CARGO_TEST = cargo test --workspace --locked --no-fail-fast

# For `make fuzz`.
TARGET ?= gguf
SECONDS ?= 3600
WORKERS ?= 1

.PHONY: help run model fixtures vocabularies ptxas spirv-tools swiftshader mesa clients test test-quick test-full test-aarch64 test-vulkan fmt lint deny sbom vendor fuzz clean-data capi install-capi test-capi test-guile

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: model ## fetch the default model if needed, build, and answer PROMPT="..." (MODEL=file.gguf, MAX_TOKENS=128)
	@cargo build --release --locked
	@cargo run --release --locked --quiet -- run --chat --max-tokens "$$MAX_TOKENS" "$$MODEL" "$$PROMPT"

model: ## fetch the default model (98 MB) into models/ and check its SHA-256
ifeq ($(MODEL),models/smollm2-135m-instruct-q4_1.gguf)
	@scripts/fetch-model.sh smollm2-135m
endif

fixtures: ## make the tiny test models in .fixtures/
	@scripts/make-fixtures.sh

vocabularies: ## fetch llama.cpp's vocabularies and test strings (35 MB) into .fixtures/vocab/
	@scripts/fetch-vocabs.sh

ptxas: ## fetch NVIDIA's assembler (40 MB) into .fixtures/tools/, which checks what the CUDA backend emits
	@scripts/fetch-ptxas.sh

spirv-tools: ## fetch the validator of SPIR-V (7 MB) into .fixtures/tools/, which checks what the Vulkan backend emits
	@scripts/fetch-spirv-tools.sh

swiftshader: ## fetch SwiftShader (30 MB) into .fixtures/tools/, a Vulkan driver that lacks much (Debian only)
	@scripts/fetch-swiftshader.sh

clients: ## fetch OpenAI's clients for Python and Node into .fixtures/clients/, which then test the server
	@scripts/fetch-clients.sh

mesa: ## fetch Mesa 26's llvmpipe (70 MB) into .fixtures/tools/, a Vulkan driver that multiplies matrices (Debian only)
	@scripts/fetch-mesa.sh

# The doctests come last so that what was left out is near the end of the output, and cargo's own lines close it.
test-quick: ## tests that need no download
	UNISONIC_TIER=quick $(CARGO_TEST) --lib --bins --tests
	@scripts/left-out.sh quick
	UNISONIC_TIER=quick $(CARGO_TEST) --doc

test: fixtures ptxas spirv-tools ## what CI runs: quick, the tiny models, SmolLM2-135M, PTX assembled and SPIR-V validated
	@scripts/fetch-model.sh smollm2-135m
	@scripts/fetch-swiftshader.sh || echo "skipped: SwiftShader could not be fetched" >&2
	@scripts/fetch-clients.sh || echo "skipped: OpenAI's clients could not be fetched" >&2
	UNISONIC_TIER=ci $(CARGO_TEST) --lib --bins --tests
	@scripts/left-out.sh ci
	UNISONIC_TIER=ci $(CARGO_TEST) --doc

test-full: fixtures ptxas spirv-tools ## everything: also Gemma 3 270M, Qwen2.5-Coder-0.5B (744 MB), the vocabularies and long sweeps
	@scripts/fetch-model.sh smollm2-135m gemma3-270m
	@scripts/fetch-model.sh qwen2.5-coder-0.5b || echo "skipped: Qwen2.5-Coder-0.5B could not be fetched" >&2
	@scripts/fetch-swiftshader.sh || echo "skipped: SwiftShader could not be fetched" >&2
	@scripts/fetch-mesa.sh || echo "skipped: Mesa 26 could not be fetched" >&2
	@scripts/fetch-clients.sh || echo "skipped: OpenAI's clients could not be fetched" >&2
	@scripts/fetch-vocabs.sh || echo "skipped: llama.cpp's vocabularies could not be fetched" >&2
	UNISONIC_TIER=full $(CARGO_TEST) --lib --bins --tests
	@scripts/test-vulkan.sh --if-possible
	@scripts/left-out.sh full
	UNISONIC_TIER=full $(CARGO_TEST) --doc

test-aarch64: ## the CPU device for aarch64, cross-compiled and run by QEMU (Debian; installs what is missing as root)
	@scripts/test-aarch64.sh

test-vulkan: ## the Vulkan backend's kernels on software devices of every width (Debian; installs what is missing as root)
	@scripts/test-vulkan.sh

capi: ## build libunisonic.so, the C ABI, into target/release/
	cargo build --release --locked -p unisonic-capi

install-capi: capi ## install libunisonic.so, its header and pkg-config's file below PREFIX=/absolute/path
	@scripts/install-capi.sh "$(PREFIX)" "$${CARGO_TARGET_DIR:-target}/release/libunisonic.so"

test-capi: ## the C ABI as C programs see it: gcc, clang, valgrind, sanitizers (Debian packages: scripts/test-capi.sh names them)
	@scripts/test-capi.sh

test-guile: ## the Guile modules (Debian: guile-3.0)
	cargo test --locked --no-run --quiet -p unisonic-capi
	UNISONIC_LIBRARY=$${CARGO_TARGET_DIR:-target}/debug/deps/libunisonic.so scripts/test-guile.sh

fmt: ## format the code
	cargo fmt --all

lint: ## what CI checks beside the tests
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --exclude unisonic-capi --no-deps --locked
# Apart: its library has the name of the program, and so has its page.
	RUSTDOCFLAGS=-Dwarnings cargo doc -p unisonic-capi --no-deps --locked

deny: ## check licences and sources of dependencies, and advisories where their database can be reached
	@scripts/deny.sh

sbom: ## write the bill of materials to target/sbom/
	@scripts/sbom.sh

vendor: ## put every dependency's source into vendor/ and prove that it builds without a network
	@scripts/vendor.sh

fuzz: ## fuzz TARGET=gguf|tokenizer|chat_template|request for SECONDS=3600 with WORKERS=1
	@scripts/fuzz.sh "$(TARGET)" "$(SECONDS)" "$(WORKERS)"

clean-data: ## remove what the other targets fetched or made (not the build)
	rm -rf models .fixtures .venv
