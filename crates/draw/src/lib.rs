//! Charts as SVG and reports as one HTML file, without a network and without scripts.
//!
//! [`Bars`], [`Lines`] and [`HeatMap`] collect numbers and names; `build` checks them and gives a
//! [`Chart`], which is an SVG file of its own ([`Chart::svg`]) or part of a [`Page`]. What is drawn
//! depends on nothing but the numbers: no clock, no environment, no font of this machine.
//!
//! Every chart has a title and a description with its numbers for screen readers. Colours follow
//! the reader's choice of light or dark, and can be told apart by the colour-blind.
//!
//! This is a crate because two others draw that have nothing else in common. `perdure bench` draws
//! bars, lines and pages, and `perdure stat` draws heat maps, also where the command was built
//! without `bench`. All of them share canvas, scales, colours and units, so a part for each user
//! would repeat most of it. The crate knows nothing of pools and needs no other crate of Perdure.

mod bars;
mod canvas;
mod chart;
mod heat;
mod lines;
mod page;
mod scale;
mod theme;
mod unit;
mod xml;

pub use bars::Bars;
pub use chart::{Chart, ChartError};
pub use heat::HeatMap;
pub use lines::Lines;
pub use page::Page;
pub use unit::Unit;
