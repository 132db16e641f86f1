//! Charts as SVG and reports as one HTML file, without a network and without scripts.
//!
//! [`Bars`], [`Lines`] and [`HeatMap`] collect numbers and names; `build` checks them and gives a [`Chart`], which is
//! an SVG file of its own ([`Chart::svg`]) or part of a [`Page`]. What is drawn depends on nothing but the numbers: no clock, no
//! environment, no font of this machine.
//!
//! Every chart has a title and a description with its numbers for screen readers. Colours follow the reader's choice of light or
//! dark, and can be told apart by the colour-blind.

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
