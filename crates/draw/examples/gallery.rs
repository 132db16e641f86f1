//! Writes one page with every kind of chart into the directory given (the present one without), and each chart as a file of its own.
//!
//!     cargo run -p perdure-draw --example gallery -- /tmp/gallery

use perdure_draw::{Bars, Chart, ChartError, HeatMap, Lines, Page, Unit};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    std::fs::create_dir_all(&directory)?;
    let mut page = Page::new("Gallery: charts of invented numbers")
        .paragraph("Every kind of chart, with numbers that were not measured.")
        .table(
            ["row", "ours", "peer", "ratio", "wanted"],
            [
                ["webproxy_32k", "410 k", "28 k", "14.6", "14.33"],
                ["varmail_32k", "290 k", "31 k", "9.4", "8.9"],
            ],
        );
    let charts = [
        ("panels", panels()?),
        ("named", named()?),
        ("ratios", ratios()?),
        ("threads", threads()?),
        ("files", files()?),
        ("map", map(256)?),
        ("large-map", map(4096)?),
    ];
    for (name, chart) in charts {
        std::fs::write(directory.join(format!("{name}.svg")), chart.svg())?;
        page = page.heading(name).chart(chart);
    }
    page = page.preformatted("perdure stat /mnt/pmem/pool --wear --svg map.svg");
    std::fs::write(directory.join("gallery.html"), page.html())?;
    Ok(())
}

/// Numbers between 0 and 1 that look random and are the same every time.
fn noise(index: usize) -> f64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    f64::from((mixed >> 40) as u32) / f64::from(1u32 << 24)
}

fn panels() -> Result<Chart, ChartError> {
    let even = (0..128).map(|index| 3.0e8 * (1.0 + 0.06 * noise(index)));
    let skewed = (0..128).map(|index| 2.4e9 / (1.0 + index as f64).powf(0.8));
    Bars::new("Fileserver: bytes written in each of 128 intervals of the pool")
        .x_label("interval of the pool")
        .y_label("written", Unit::Bytes)
        .categories((0..128).map(|interval| interval.to_string()))
        .series("ours", even)
        .series("baseline (first free block)", skewed)
        .panels()
        .means()
        .build()
}

fn named() -> Result<Chart, ChartError> {
    Bars::new("The same operations on other file systems of this machine")
        .categories(["fileserver", "webproxy", "webserver", "varmail"])
        .y_label("throughput", Unit::named("operations/s"))
        .series("library", [310e3, 410e3, 520e3, 290e3])
        .series("FUSE mount", [21e3, 33e3, 60e3, 18e3])
        .series("tmpfs", [120e3, 140e3, 190e3, 110e3])
        .series(
            "ext4 on a loop device",
            [Some(60e3), None, Some(98e3), Some(21e3)],
        )
        .build()
}

fn ratios() -> Result<Chart, ChartError> {
    let rows = [
        "peak_fileserver",
        "peak_webproxy",
        "peak_webserver",
        "peak_varmail",
        "wear_data_fileserver",
        "wear_data_webproxy",
        "wear_all_varmail",
        "aged_overwrite_4k",
    ];
    Bars::new("Rows against their bars, a title that is so long that it does not fit into one line of the chart")
        .categories(rows)
        .y_label("ratio", Unit::Ratio)
        .series("ours", [5.3, 31.2, 1.7, 1.9, 1.06, 1.04, 1.4, 0.95])
        .series("paper", [Some(5.08), Some(29.63), Some(1.65), Some(1.78), None, None, None, None])
        .reference("even", 1.0)
        .build()
}

fn threads() -> Result<Chart, ChartError> {
    let threads = [1.0, 2.0, 4.0, 8.0];
    let line = |figures: [f64; 4]| threads.into_iter().zip(figures);
    Lines::new("Throughput over threads, 8,192 files")
        .x_label("threads", Unit::Count)
        .x_logarithmic()
        .x_ticks_at_points()
        .y_label("throughput", Unit::named("operations/s"))
        .series("webproxy, ours", line([210e3, 401e3, 409e3, 411e3]))
        .series("webproxy, baseline", line([150e3, 178e3, 172e3, 160e3]))
        .like(0)
        .series("varmail, ours", line([160e3, 290e3, 301e3, 299e3]))
        .series("varmail, baseline", line([90e3, 104e3, 101e3, 98e3]))
        .like(2)
        .build()
}

fn files() -> Result<Chart, ChartError> {
    Lines::new("Throughput of Webproxy over the number of files")
        .x_label("files", Unit::Count)
        .x_categories(["8,192", "32,768", "1,000,000"])
        .y_label("throughput", Unit::named("operations/s"))
        .y_logarithmic()
        .values("ours", [410e3, 402e3, 320e3])
        .values("baseline", [Some(150e3), Some(28e3), None])
        .reference("0.7 × of 8,192 files", 0.7 * 410e3)
        .build()
}

fn map(segments: usize) -> Result<Chart, ChartError> {
    let hot = |index: usize| if index.is_multiple_of(37) { 1.0 } else { 0.0 };
    let wear = (0..segments).map(move |index| 9000.0 + 2500.0 * noise(index) + 4000.0 * hot(index));
    HeatMap::new(format!("Blocks written in each of {segments} segments"))
        .description("Wear since the pool was made.")
        .cells("segment", wear, Unit::named("blocks"))
        .mark('m', "metadata", [0, 1, 2, 3])
        .mark('x', "mixed", [9, 57])
        .build()
}
