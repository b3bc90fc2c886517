//! What a program has recorded: launches for the shapes of batches that came, made when the first one comes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::waits::early_objects;
use unisonic_core::launch::inputs::{InputLayout, TileCounts};
use unisonic_core::launch::{Area, Checked, Launches, Lowered, Place, Shape, Wanted};
use unisonic_core::plan::DeviceError;

use crate::areas::Areas;
use crate::device::{CompileProgress, OnCompile};
use crate::machine::{Dispatch, Machine, Span, Work};
use crate::shared::SharedMachine;

/// Recordings that are kept; of more, that which was used longest ago goes. Generating takes a few: one for each number of
/// rows, and again when the sequence has become twice as long.
const MAX_RECORDINGS: usize = 24;

/// Recordings and the kernels in them; dropped while nobody else uses the machine.
pub(crate) struct Recordings<M: Machine> {
    machine: SharedMachine<M>,
    lowered: Arc<dyn Lowered>,
    areas: Areas<M>,
    /// Compiled ones by their text: shapes share most of them.
    kernels: HashMap<String, M::Kernel>,
    /// The one used last is last.
    kept: Vec<((Shape, Wanted), Recorded<M>)>,
    on_compile: Arc<OnCompile>,
}

/// Launches for a shape.
pub(crate) struct Recorded<M: Machine> {
    pub recording: M::Recording,
    pub inputs: InputLayout,
    pub checked: Vec<Checked>,
    /// Words that a run gives back: first `found` of [`Launches`], then the logits, or the tokens and their flags.
    pub found_len: usize,
    /// Whether tokens come after `found`.
    pub picks: bool,
}

impl<M: Machine> Recordings<M> {
    pub(crate) fn new(
        machine: SharedMachine<M>,
        lowered: Arc<dyn Lowered>,
        areas: Areas<M>,
        on_compile: Arc<OnCompile>,
    ) -> Self {
        Self { machine, lowered, areas, kernels: HashMap::new(), kept: vec![], on_compile }
    }

    /// The launches for a shape.
    pub(crate) fn of_shape(&mut self, shape: Shape, wanted: Wanted) -> Result<&mut Recorded<M>, DeviceError> {
        let key = (shape, wanted);
        let recorded = match self.kept.iter().position(|&(kept, _)| kept == key) {
            Some(at) => self.kept.remove(at).1,
            None => {
                if self.kept.len() == MAX_RECORDINGS {
                    let oldest = self.kept.remove(0);
                    tracing::debug!(shape = ?oldest.0, "recording dropped");
                    self.machine.release(oldest);
                }
                self.record(shape, wanted)?
            }
        };
        self.kept.push((key, recorded));
        let last = self.kept.len() - 1;
        Ok(&mut self.kept[last].1)
    }

    /// What was asked for last, if it is there.
    pub(crate) fn last(&self) -> Option<&Recorded<M>> {
        self.kept.last().map(|(_, recorded)| recorded)
    }

    /// The launches for a shape, on device memory.
    pub(crate) fn prepare(
        &mut self,
        shape: Shape,
        wanted: Wanted,
    ) -> Result<(Launches, Work<M>), DeviceError> {
        let lower_error = |error| DeviceError::Lower { device: self.machine.info().id, error };
        let launches = self.lowered.launches(shape, wanted).map_err(lower_error)?;
        let kernels = self.kernels(&launches.kernels)?;
        tracing::debug!(
            ?shape,
            ?wanted,
            launches = launches.launches.len(),
            kernels = kernels.len(),
            compiled = self.kernels.len(),
            "recording"
        );
        Self::assert_early_are_images(&launches);
        let work = self.work(&launches, &kernels);
        Ok((launches, work))
    }

    fn record(&mut self, shape: Shape, wanted: Wanted) -> Result<Recorded<M>, DeviceError> {
        let (launches, work) = self.prepare(shape, wanted)?;
        let recording = self.machine.call(|machine| machine.record(&work))?;
        let words = |span: &Span<M>| (span.len_bytes / 4) as usize;
        Ok(Recorded {
            recording,
            inputs: launches.inputs,
            checked: launches.checked,
            found_len: words(&work.results[0]),
            picks: launches.picked.is_some(),
        })
    }

    /// Kernels, each compiled once.
    fn kernels(&mut self, kernels: &[Kernel]) -> Result<Vec<M::Kernel>, DeviceError> {
        let texts: Vec<String> = kernels.iter().map(ToString::to_string).collect();
        let total = texts.iter().filter(|&text| !self.kernels.contains_key(text)).count();
        let mut done = 0;
        let tell = |done| {
            if total > 0 {
                (self.on_compile)(CompileProgress { done, total });
            }
        };
        tell(done);
        let mut compiled = Vec::with_capacity(kernels.len());
        for (kernel, text) in kernels.iter().zip(texts) {
            compiled.push(match self.kernels.entry(text) {
                Entry::Occupied(there) => there.get().clone(),
                Entry::Vacant(place) => {
                    tracing::debug!(kernel = kernel.name, "compiling");
                    let new = self.machine.call(|machine| machine.compile(kernel))?;
                    done += 1;
                    tell(done);
                    place.insert(new).clone()
                }
            });
        }
        Ok(compiled)
    }

    /// What kernels read before they wait for the launches before them, no launch writes.
    ///
    /// # Panics
    /// If it is not in an image: the lowering is wrong, and a GPU would read what was there before.
    fn assert_early_are_images(launches: &Launches) {
        let early: Vec<_> = launches.kernels.iter().map(early_objects).collect();
        for launch in &launches.launches {
            let (kernel, early) = (&launches.kernels[launch.kernel as usize], &early[launch.kernel as usize]);
            for (object, place) in addressed(kernel).zip(&launch.places) {
                let is_right = !early.contains(&object) || matches!(place.area, Area::Image(_));
                let name = &kernel.objects[object.index()].name;
                assert!(is_right, "`{}` reads `{name}` early, and {place:?} is no image", kernel.name);
            }
        }
    }

    /// Fills `bytes` with what lies in a page, in all layers.
    pub(crate) fn read_page(&self, page: u32, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // Nothing reads the beginning of the inputs before the next run has written it.
        let inputs = Place { area: Area::Inputs, offset_bytes: 0, len_bytes: 4 };
        let places = self.page(page);
        let results = places.iter().map(|place| self.areas.span(place)).collect();
        let work = Work { dispatches: vec![], inputs: self.areas.span(&inputs), results };
        let mut recording = self.machine.call(|machine| machine.record(&work))?;
        let read =
            self.machine.call(|machine| machine.run(&mut recording, &[0; 4], TileCounts::default(), bytes));
        self.machine.release((recording, work));
        read
    }

    /// Writes a page, in all layers.
    pub(crate) fn write_page(&self, page: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut rest = bytes;
        for Place { area, offset_bytes, len_bytes } in self.page(page) {
            let (own, others) = rest.split_at(len_bytes as usize);
            self.areas.upload(area, offset_bytes, own)?;
            rest = others;
        }
        Ok(())
    }

    /// Where a page is in each layer.
    fn page(&self, page: u32) -> Vec<Place> {
        let of_layer = |(layer, &len_bytes): (u32, &u64)| Place {
            area: Area::Cache(layer),
            offset_bytes: u64::from(page) * len_bytes,
            len_bytes,
        };
        (0..).zip(&self.lowered.memory().page_len_bytes).map(of_layer).collect()
    }

    fn work(&self, launches: &Launches, kernels: &[M::Kernel]) -> Work<M> {
        let dispatches = launches.launches.iter().map(|launch| Dispatch {
            kernel: kernels[launch.kernel as usize].clone(),
            spans: launch.places.iter().map(|place| self.areas.span(place)).collect(),
            params: launch.params.clone(),
            workgroups: launch.workgroups,
        });
        let found = self.areas.span(&launches.found);
        let inputs = Place { area: Area::Inputs, offset_bytes: 0, len_bytes: launches.inputs.len_bytes() };
        let picked = launches.picked.iter().flat_map(|picked| [picked.tokens, picked.broken]);
        let given = launches.logits.into_iter().chain(picked).map(|place| self.areas.span(&place));
        Work {
            dispatches: dispatches.collect(),
            inputs: self.areas.span(&inputs),
            results: [found].into_iter().chain(given).collect(),
        }
    }
}

impl<M: Machine> Drop for Recordings<M> {
    fn drop(&mut self) {
        let handles = (std::mem::take(&mut self.kept), std::mem::take(&mut self.kernels));
        self.machine.release(handles);
    }
}
