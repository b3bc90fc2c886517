//! Which status an error of the engine is.

use std::io::ErrorKind;

use unisonic_core::format::FormatError;
use unisonic_core::plan::{DeviceError, WeightError};
use unisonic_engine::chat::ChatError;
use unisonic_engine::constraint::ConstraintError;
use unisonic_engine::receipt::ReceiptError;
use unisonic_engine::sampling::SamplerError;
use unisonic_engine::tokenizer::TokenizerError;
use unisonic_engine::{EngineError, SavedSessionError};

use crate::error::Error;
use crate::status::unisonic_status;

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::Plan(_) | EngineError::Range { .. } => unisonic_status::Model,
            EngineError::Device(error) => of_device(error),
            EngineError::ContextOverflow { .. } => unisonic_status::ContextFull,
            EngineError::OutOfPages { .. } => unisonic_status::OutOfMemory,
            EngineError::KvDir { .. } => unisonic_status::Io,
            EngineError::Sampling(_)
            | EngineError::Constraint(_)
            | EngineError::ForeignSession
            | EngineError::EmptyPrompt
            | EngineError::Option { .. } => unisonic_status::InvalidArgument,
        };
        Self::new(status, error.to_string())
    }
}

fn of_device(error: &DeviceError) -> unisonic_status {
    match error {
        DeviceError::Plan(_) | DeviceError::Weight(_) => unisonic_status::Model,
        DeviceError::Batch(_) => unisonic_status::InvalidArgument,
        DeviceError::OutOfMemory { .. } | DeviceError::TooLarge { .. } => unisonic_status::OutOfMemory,
        DeviceError::Lower { .. } | DeviceError::NoClock { .. } | DeviceError::Machine { .. } => {
            unisonic_status::Device
        }
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        let status = match &error {
            FormatError::Open { .. } | FormatError::NotAFile { .. } => unisonic_status::Io,
            FormatError::ReadTensor { problem, .. } if problem.kind() == ErrorKind::OutOfMemory => {
                unisonic_status::OutOfMemory
            }
            FormatError::ReadTensor { .. } | FormatError::Shrunk { .. } => unisonic_status::Io,
            _ => unisonic_status::Model,
        };
        Self::new(status, error.to_string())
    }
}

/// Errors that are all of one status.
macro_rules! of_status {
    ($($error:ty => $status:ident,)*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::new(unisonic_status::$status, error.to_string())
            }
        }
    )*};
}

of_status! {
    WeightError => Model,
    TokenizerError => Model,
    ChatError => InvalidArgument,
    SamplerError => InvalidArgument,
    ConstraintError => InvalidArgument,
    ReceiptError => Mismatch,
    SavedSessionError => Mismatch,
    unisonic_devices::UnknownDevice => InvalidArgument,
    unisonic_devices::OpenError => Device,
}
