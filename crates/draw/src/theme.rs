//! Colours and type, by day, by night and on paper.
//!
//! Series have colours that stay apart for people with any of the three kinds of colour blindness and stand out from the
//! background (a test computes both); lines differ by marker and dash too. Heat maps use the scale *cividis*, whose lightness
//! rises evenly and which was made for the colour-blind.

use std::fmt::Write;

/// Colours of series on white.
const LIGHT: [&str; 6] = [
    "#0072b2", "#d55e00", "#2a1a4a", "#9a8a78", "#a21cf0", "#7d2d3a",
];
/// The same on the night's background.
const DARK: [&str; 6] = [
    "#56b4e9", "#e69f00", "#f2f0d8", "#8f7f70", "#bb22ff", "#b4f08a",
];
const LIGHT_BACKGROUND: &str = "#ffffff";
const DARK_BACKGROUND: &str = "#15181c";

/// Series beyond this number share colours and differ by their dashes.
pub(crate) const SERIES_COLOURS: usize = LIGHT.len();

/// Points of the scale *cividis* (Nuñez, Anderton, Renslow: "Optimizing colormaps with consideration for color vision deficiency",
/// PLOS ONE 2018), evenly apart.
const CIVIDIS: [[u8; 3]; 10] = [
    [0x00, 0x22, 0x4e],
    [0x12, 0x35, 0x70],
    [0x3b, 0x49, 0x6c],
    [0x57, 0x5d, 0x6d],
    [0x70, 0x71, 0x73],
    [0x8a, 0x86, 0x78],
    [0xa5, 0x9c, 0x74],
    [0xc3, 0xb3, 0x69],
    [0xe1, 0xcc, 0x55],
    [0xfe, 0xe8, 0x38],
];

/// The colour at `share` (0 to 1) of the scale.
pub(crate) fn heat(share: f64) -> String {
    let place = share.clamp(0.0, 1.0) * (CIVIDIS.len() - 1) as f64;
    let index = (place as usize).min(CIVIDIS.len() - 2);
    let part = place - index as f64;
    let mut colour = String::from("#");
    for (from, to) in CIVIDIS[index].into_iter().zip(CIVIDIS[index + 1]) {
        let mixed = f64::from(from) + (f64::from(to) - f64::from(from)) * part;
        // A string takes everything.
        let _ = write!(colour, "{:02x}", mixed.round() as u8);
    }
    colour
}

/// The style sheet of every chart. The same in all, so that it may stand in a page once.
pub(crate) fn chart_style() -> String {
    let light = rules(LIGHT_BACKGROUND, "#1b1f24", "#57606a", "#e3e6ea", &LIGHT);
    let dark = rules(DARK_BACKGROUND, "#e6e9ee", "#a5adb8", "#30363d", &DARK);
    // Plain rules first: some renderers know neither variables nor media queries. Paper is always white.
    format!(
        ".pd text{{font:12px system-ui,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}}\
         .pd .pd-title{{font-size:15px;font-weight:600}}\
         .pd .pd-line{{fill:none;stroke-width:2;stroke-linejoin:round}}\
         .pd .pd-halo{{paint-order:stroke;stroke-width:4;stroke-linejoin:round}}\
         .pd .pd-ref{{fill:none;stroke-width:1.3;stroke-dasharray:5 4}}\
         {light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
    )
}

fn rules(background: &str, ink: &str, muted: &str, grid: &str, series: &[&str]) -> String {
    let mut rules = format!(
        ".pd .pd-back{{fill:{background}}}.pd text{{fill:{ink}}}.pd .pd-muted{{fill:{muted}}}.pd .pd-halo{{stroke:{background}}}\
         .pd .pd-grid{{stroke:{grid}}}.pd .pd-axis{{stroke:{muted}}}.pd .pd-ref{{stroke:{ink}}}\
         .pd .pd-none{{fill:none;stroke:{muted};stroke-dasharray:2 2}}"
    );
    for (index, colour) in series.iter().enumerate() {
        let _ = write!(
            rules,
            ".pd .pd-f{index}{{fill:{colour}}}.pd .pd-s{index}{{stroke:{colour}}}"
        );
    }
    rules
}

/// The style sheet of a page, without that of its charts.
pub(crate) fn page_style() -> String {
    format!(
        ":root{{color-scheme:light dark;--back:{LIGHT_BACKGROUND};--ink:#1b1f24;--muted:#57606a;--rule:#d0d7de;--stripe:#f6f8fa}}\
         @media screen and (prefers-color-scheme:dark){{:root{{--back:{DARK_BACKGROUND};--ink:#e6e9ee;--muted:#a5adb8;--rule:#30363d;--stripe:#1b2026}}}}\
         *{{box-sizing:border-box}}\
         body{{margin:0 auto;max-width:50rem;padding:1rem;background:var(--back);color:var(--ink);\
         font:1rem/1.5 system-ui,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}}\
         h1{{font-size:1.7rem;line-height:1.2;margin:1rem 0}}h2{{font-size:1.25rem;margin:2.2rem 0 .6rem}}\
         p{{margin:.7rem 0;overflow-wrap:break-word}}\
         figure{{margin:1.4rem 0;overflow-x:auto}}figure svg{{display:block;width:100%;min-width:34rem;height:auto}}\
         .wide{{overflow-x:auto;margin:1.2rem 0}}\
         table{{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}}\
         th,td{{padding:.3rem .7rem;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap}}\
         th{{color:var(--muted);font-weight:600}}tbody tr:nth-child(even){{background:var(--stripe)}}.n{{text-align:right}}\
         pre{{overflow-x:auto;padding:.7rem;background:var(--stripe);font-size:.85rem}}\
         @media print{{body{{max-width:none;font-size:10pt;padding:0}}figure,tr,pre{{break-inside:avoid}}h2{{break-after:avoid}}\
         figure,.wide{{overflow:visible}}figure svg{{min-width:0;max-width:15cm}}figure{{margin:.6rem 0}}h2{{margin-top:1rem}}td,th{{white-space:normal}}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear light of a colour's three channels.
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value =
                f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("hex")) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn luminance([red, green, blue]: [f64; 3]) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(linear(one)), luminance(linear(other)));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// What remains of a colour without the first, second or third kind of cone (Machado, Oliveira, Fernandes, IEEE TVCG 2009), and
    /// with all.
    const SIGHTS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];

    /// CIELAB under white D65.
    fn lab(colour: &str, sight: &[[f64; 3]; 3]) -> [f64; 3] {
        let apply = |rows: &[[f64; 3]; 3], values: [f64; 3]| {
            rows.map(|row| (0..3).map(|index| row[index] * values[index]).sum::<f64>())
        };
        let seen = apply(sight, linear(colour)).map(|value| value.clamp(0.0, 1.0));
        let to_xyz = [
            [
                0.4124564 / 0.95047,
                0.3575761 / 0.95047,
                0.1804375 / 0.95047,
            ],
            [0.2126729, 0.7151522, 0.072175],
            [0.0193339 / 1.08883, 0.119192 / 1.08883, 0.9503041 / 1.08883],
        ];
        let [x, y, z] = apply(&to_xyz, seen).map(|value| match value > 0.008856 {
            true => value.cbrt(),
            false => 7.787 * value + 16.0 / 116.0,
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn distance(one: &str, other: &str, sight: &[[f64; 3]; 3]) -> f64 {
        let (one, other) = (lab(one, sight), lab(other, sight));
        (0..3)
            .map(|index| (one[index] - other[index]).powi(2))
            .sum::<f64>()
            .sqrt()
    }

    #[test]
    fn series_differ_for_everybody() {
        for colours in [LIGHT, DARK] {
            for (index, one) in colours.iter().enumerate() {
                for other in &colours[..index] {
                    for sight in &SIGHTS {
                        let apart = distance(one, other, sight);
                        // 2.3 can just be noticed side by side.
                        assert!(apart > 20.0, "{one} and {other}: {apart}");
                    }
                }
            }
        }
    }

    #[test]
    fn series_stand_out_from_the_background() {
        for (colours, background) in [(LIGHT, LIGHT_BACKGROUND), (DARK, DARK_BACKGROUND)] {
            for colour in colours {
                let seen = contrast(colour, background);
                assert!(seen >= 3.0, "{colour}: {seen}");
            }
        }
    }

    #[test]
    fn the_heat_scale_gets_lighter_all_the_way() {
        let lightness: Vec<f64> = (0..=100)
            .map(|percent| luminance(linear(&heat(f64::from(percent) / 100.0))))
            .collect();
        assert!(lightness.is_sorted());
        assert_eq!(heat(-1.0), "#00224e");
        assert_eq!(heat(2.0), "#fee838");
    }
}
