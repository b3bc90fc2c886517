//! A replay on a device.

use unisonic_core::kir::interp::run;
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::{Kernel, verify};
use unisonic_gpu::machine::MachineError;
use unisonic_vulkan::driver::Shader;

use super::{Program, Replay};
use crate::kernels::{Code, Kernels, Shaders};
use crate::outcome::{Difference, Outcome, words};
use crate::reduce::REPEATS;

impl Replay {
    /// Runs it on a device; a kernel legalised for it.
    pub fn run(&self, kernels: &mut dyn Kernels) -> Outcome {
        self.run_again(kernels).0
    }

    /// The same, and the replay as it is of this device.
    pub fn run_again(&self, kernels: &mut dyn Kernels) -> (Outcome, Self) {
        let mut now = Self { found: None, ..self.clone() };
        let ran = match &self.program {
            Program::Kernel(kernel) => now.run_kernel(kernel, kernels),
            Program::Shader(shader) => match kernels.shaders() {
                Some(shaders) => now.run_shader(shader, shaders),
                None => {
                    let reason = "probes are SPIR-V, which the device does not take";
                    Ok(Outcome::not_applicable(reason))
                }
            },
        };
        let outcome = ran.unwrap_or_else(|error| Outcome::failed(error.to_string()));
        let facts = kernels.facts();
        let difference = outcome.reason().unwrap_or_else(|| "none".to_owned()).replace('\n', " ");
        for (name, value) in [
            ("device", &facts.device),
            ("hardware", &facts.name),
            ("driver", &facts.driver),
            ("difference", &difference),
        ] {
            match now.notes.iter_mut().find(|note| note.0 == name) {
                Some(note) => note.1 = value.clone(),
                None => now.notes.push((name.to_owned(), value.clone())),
            }
        }
        (outcome, now)
    }

    fn run_kernel(&mut self, kernel: &Kernel, kernels: &mut dyn Kernels) -> Result<Outcome, MachineError> {
        if let Some(fault) = verify(kernel).first() {
            return Ok(Outcome::failed(format!("the kernel does not verify: {fault}")));
        }
        let mut launch = self.launch.launch();
        if let Err(trap) = run(kernel, &mut launch) {
            return Ok(Outcome::failed(format!("the interpreter does not run the kernel: {trap}")));
        }
        if launch.buffers != self.expected {
            let reason = "the file expects other bits than the interpreter finds: it was changed, or the tool is wrong";
            return Ok(Outcome::failed(reason));
        }
        let legal = legalize(kernel, &kernels.facts().hardware.caps);
        if let Some(reason) = kernels.misfit(&legal) {
            return Ok(Outcome::not_applicable(reason));
        }
        let Code { language, text } = kernels.code(&legal);
        self.code = Some((language.name().to_owned(), text));
        let mut difference = None;
        let expected = &self.expected;
        let mut last = None;
        kernels.run(&legal, &self.launch.launch(), REPEATS, &mut |found| {
            difference = Difference::of_buffers(kernel, expected, &found);
            last = Some(found);
            difference.is_none()
        })?;
        self.found = last;
        Ok(of_difference(difference))
    }

    fn run_shader(&mut self, shader: &Shader, shaders: &mut dyn Shaders) -> Result<Outcome, MachineError> {
        let ([input, _], [_, expected]) = (&self.launch.buffers[..], &self.expected[..]) else {
            return Ok(Outcome::failed("a probe has an input and an output"));
        };
        let expected = words(expected);
        let found = shaders.run_shader(shader, &words(input), self.launch.groups, expected.len())?;
        let others: Vec<Vec<u32>> = self.permitted.iter().map(|output| words(output)).collect();
        // What is permitted is as good as what is expected.
        let right = expected.iter().zip(&found).enumerate().map(|(at, (expected, found))| {
            if others.iter().any(|other| other.get(at) == Some(found)) { *found } else { *expected }
        });
        let right: Vec<u32> = right.collect();
        let bytes = found.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.found = Some(vec![input.clone(), bytes]);
        Ok(of_difference(Difference::of_words([("output", &right[..], &found[..])])))
    }
}

fn of_difference(difference: Option<Difference>) -> Outcome {
    match difference {
        None => Outcome::Passed,
        difference => Outcome::Failed { reason: "other bits".to_owned(), difference },
    }
}
