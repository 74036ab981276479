//! The C interface of Omnes: omnes.h and libomnes.so.
