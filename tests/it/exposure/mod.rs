//! What somebody without a key, a page of another site, or a caller who does not let go, can do to the service.

mod bodies;
mod connections;
mod guesses;
mod methods;
mod origins;
mod pages;
mod socket;
