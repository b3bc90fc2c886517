//! The arithmetic of profile u1.
