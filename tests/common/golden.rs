//! Another runtime's answers (tests/data/README.md) and how far ours are from them.

use std::path::Path;

use serde_json::Value as Json;

/// A golden file.
pub struct Golden(Json);

impl Golden {
    /// Reads `tests/data/goldens/<path>`.
    pub fn read(path: &str) -> Self {
        let path = super::root("tests/data/goldens").join(Path::new(path));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(serde_json::from_str(&text).unwrap())
    }

    /// A field that is a list of ids.
    pub fn ids(&self, field: &str) -> Vec<u32> {
        ids(&self.0[field])
    }

    /// A field that is a list of numbers.
    pub fn floats(&self, field: &str) -> Vec<f64> {
        floats(&self.0[field])
    }

    /// The greedy runs of a real model.
    pub fn runs(&self) -> Vec<Run> {
        self.0["runs"].as_array().unwrap().iter().map(Run::new).collect()
    }

    /// The teacher-forced scores of a real model.
    pub fn nll(&self) -> Nll {
        let nll = &self.0["nll"];
        Nll {
            ids: ids(&nll["ids"]),
            logprobs_of_next: floats(&nll["logprobs_of_next"]),
            argmax: ids(&nll["argmax"]),
            mean_nll: nll["mean_nll"].as_f64().unwrap(),
        }
    }
}

/// A greedy run.
pub struct Run {
    pub name: String,
    pub prompt_ids: Vec<u32>,
    pub output_ids: Vec<u32>,
    /// One for each output id.
    pub steps: Vec<RunStep>,
}

/// The logits that an output id was chosen from.
pub struct RunStep {
    /// The five largest: id and logit.
    pub top5: Vec<(u32, f64)>,
    /// Log-sum-exp.
    pub lse: f64,
    /// Difference of the two largest.
    pub margin: f64,
}

impl Run {
    fn new(run: &Json) -> Self {
        let steps = run["steps"].as_array().unwrap().iter().map(|step| RunStep {
            top5: step["top5"]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| (id(&entry[0]), entry[1].as_f64().unwrap()))
                .collect(),
            lse: step["lse"].as_f64().unwrap(),
            margin: step["margin"].as_f64().unwrap(),
        });
        Self {
            name: run["name"].as_str().unwrap().to_owned(),
            prompt_ids: ids(&run["prompt_ids"]),
            output_ids: ids(&run["output_ids"]),
            steps: steps.collect(),
        }
    }
}

/// Scores of a text.
pub struct Nll {
    pub ids: Vec<u32>,
    pub logprobs_of_next: Vec<f64>,
    pub argmax: Vec<u32>,
    pub mean_nll: f64,
}

fn id(json: &Json) -> u32 {
    json.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap()
}

fn ids(json: &Json) -> Vec<u32> {
    json.as_array().unwrap().iter().map(id).collect()
}

fn floats(json: &Json) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Normalised mean square error: the sum of squared differences over the sum of squares of what is right.
pub fn nmse(found: &[f32], right: &[f64]) -> f64 {
    assert_eq!(found.len(), right.len());
    let error: f64 = found.iter().zip(right).map(|(&a, &b)| (f64::from(a) - b) * (f64::from(a) - b)).sum();
    error / right.iter().map(|b| b * b).sum::<f64>()
}

/// Log-sum-exp in f64, independent of the arithmetic under test.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits[argmax(logits)]);
    max + libm::log(logits.iter().map(|&z| libm::exp(f64::from(z) - max)).sum::<f64>())
}

/// Index of the largest, the first of equals.
pub fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, z) in logits.iter().enumerate() {
        assert!(!z.is_nan(), "logit {i} is not a number");
        if *z > logits[best] {
            best = i;
        }
    }
    best
}
