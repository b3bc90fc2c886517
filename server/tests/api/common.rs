//! A server in this process over a committed tiny model, and what tests send it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::{Value as Json, json};
use tower::ServiceExt;
use unisonic_core::format::GgufFile;
use unisonic_core::plan::{
    Batch, Device, DeviceError, DeviceInfo, Limits, Plan, Program, Progress, RangeFlag, WeightSource,
};
use unisonic_cpu::native::CpuDevice;
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_engine::{Engine, EngineOptions};
use unisonic_server::{App, Load, Loaded, Options};

/// Each turn in brackets with its role.
pub const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}\
    {% if add_generation_prompt %}[assistant:{% endif %}";

/// Context of the tests' server.
pub const CONTEXT: u32 = 256;

/// What the device does wrong.
#[derive(Clone, Default)]
pub struct Fault(Arc<[AtomicU32; 2]>);

impl Fault {
    /// The step of this number, counted from 1, fails.
    pub fn at_step(&self, step: u32) {
        self.0[0].store(step, Ordering::SeqCst);
    }

    /// Each step takes so long.
    pub fn slow(&self, milliseconds: u32) {
        self.0[1].store(milliseconds, Ordering::SeqCst);
    }

    fn fails(&self) -> bool {
        std::thread::sleep(Duration::from_millis(self.0[1].load(Ordering::SeqCst).into()));
        self.0[0].fetch_update(Ordering::SeqCst, Ordering::SeqCst, |step| step.checked_sub(1)) == Ok(1)
    }
}

/// The CPU, which can be made to fail.
struct Faulty {
    cpu: CpuDevice,
    fault: Fault,
}

struct FaultyProgram {
    program: Box<dyn Program>,
    fault: Fault,
}

impl Device for Faulty {
    fn info(&self) -> DeviceInfo {
        self.cpu.info()
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Box<dyn Program>, DeviceError> {
        let program = self.cpu.load(plan, weights, limits, progress)?;
        Ok(Box::new(FaultyProgram { program, fault: self.fault.clone() }))
    }
}

impl Program for FaultyProgram {
    fn plan(&self) -> &Plan {
        self.program.plan()
    }

    fn device(&self) -> &DeviceInfo {
        self.program.device()
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError> {
        if self.fault.fails() {
            let (device, message) = ("cpu".into(), "a test says so".into());
            return Err(DeviceError::Machine { device, message, lost: true });
        }
        self.program.run(batch)
    }

    fn logits(&self, output: usize) -> &[f32] {
        self.program.logits(output)
    }
}

/// Loads the tiny model.
pub fn loader(fault: Fault) -> Load {
    Box::new(move || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/quants/llama-Q4_0.gguf");
        let file = GgufFile::open(&path).map_err(|error| error.to_string())?;
        let tokenizer = Arc::new(Tokenizer::from_metadata(file.metadata()).map_err(|e| e.to_string())?);
        let device = Faulty { cpu: CpuDevice::new().with_threads(1), fault: fault.clone() };
        let options = EngineOptions {
            context_len: Some(CONTEXT),
            sequences: 8,
            max_outputs: 64,
            ..EngineOptions::default()
        };
        let loaded = Engine::load(file.metadata(), file.tensors(), &file, &device, &options, &|_| {});
        let engine = loaded.map_err(|error| error.to_string())?;
        let template = ChatTemplate::new(TEMPLATE).map_err(|error| error.to_string());
        Ok(Loaded { engine, name: "tiny".into(), tokenizer, template })
    })
}

/// Loads the tiny model, with a template that has these words.
pub fn with_words(words: &str) -> Load {
    with_template(&format!("{{# {words} #}}{TEMPLATE}"))
}

/// Loads the tiny model with another template.
pub fn with_template(source: &str) -> Load {
    let mut load = loader(Fault::default());
    let source = source.to_owned();
    Box::new(move || {
        let mut loaded = load()?;
        loaded.template = ChatTemplate::new(source.as_str()).map_err(|error| error.to_string());
        Ok(loaded)
    })
}

/// A server without a port.
pub struct Server {
    pub app: Arc<App>,
    pub router: Router,
}

impl Server {
    /// With these options, ready.
    pub async fn with(options: Options) -> Self {
        Self::start(options, loader(Fault::default())).await
    }

    /// Ready.
    pub async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn start(options: Options, load: Load) -> Self {
        let server = Self::loading(options, load);
        server.ready().await;
        server
    }

    pub fn loading(options: Options, load: Load) -> Self {
        let app = App::start(options, load).unwrap();
        let router = app.router();
        Self { app, router }
    }

    pub async fn ready(&self) {
        while self.get("/health").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &Json) -> Answer {
        self.send(Request::post(path).body(Body::from(body.to_string())).unwrap()).await
    }

    /// The answer, which has to be one.
    pub async fn json(&self, path: &str, body: &Json) -> Json {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        answer.json()
    }

    /// A number of `/metrics`.
    pub async fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await.text;
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until a number of `/metrics` is this one.
    pub async fn until(&self, name: &str, number: f64) {
        while self.metric(name).await != number {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The error of a field.
    pub async fn refused(&self, path: &str, body: &Json, param: &str) -> String {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param, "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        let message = error["message"].as_str().unwrap().to_owned();
        assert!(message.contains(param), "{message}");
        message
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.stop();
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The chunks of a stream, which ends as it should.
    pub fn chunks(&self) -> Vec<Json> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let events = self.text.strip_suffix("data: [DONE]\n\n").expect("DONE is last");
        let data = events.split_terminator("\n\n").filter(|event| !event.starts_with(':'));
        data.map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }
}

/// A request with one message.
pub fn chat(content: &str, more: Json) -> Json {
    with(json!({ "messages": [{ "role": "user", "content": content }], "max_tokens": 24 }), more)
}

/// A request of a prompt.
pub fn prompt(text: &str, more: Json) -> Json {
    with(json!({ "prompt": text, "max_tokens": 24 }), more)
}

/// An object with other members.
pub fn with(mut object: Json, more: Json) -> Json {
    if let (Json::Object(object), Json::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// The answer that the chunks of a stream are, as if it had come at once.
pub fn put_together(chunks: &[Json], object: &str) -> Json {
    let mut whole = chunks[0].clone();
    whole["object"] = object.into();
    whole["usage"] = Json::Null;
    let mut choices: Vec<Json> = Vec::new();
    for chunk in chunks {
        if !chunk["usage"].is_null() {
            assert_eq!(chunk["choices"], json!([]));
            whole["usage"] = chunk["usage"].clone();
        }
        for choice in chunk["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            choices.resize(choices.len().max(index + 1), Json::Null);
            add(&mut choices[index], choice);
        }
    }
    for choice in &mut choices {
        if let Some(delta) = choice.as_object_mut().unwrap().remove("delta") {
            choice["message"] = delta;
        }
    }
    whole["choices"] = choices.into();
    whole
}

/// Adds what a chunk says to what was said.
fn add(to: &mut Json, more: &Json) {
    match (to, more) {
        (to @ Json::Null, more) => *to = more.clone(),
        (_, Json::Null) => {}
        (Json::Object(to), Json::Object(more)) => {
            for (name, more) in more {
                add(to.entry(name).or_insert(Json::Null), more);
            }
        }
        (Json::Array(to), Json::Array(more)) => to.extend(more.iter().cloned()),
        (Json::String(to), Json::String(more))
            if !["assistant", "stop", "length"].contains(&more.as_str()) =>
        {
            to.push_str(more);
        }
        (to, more) => *to = more.clone(),
    }
}
