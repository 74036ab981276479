//! Contradictions within and between the papers, with our figures.

use crate::registry::Judged;
use crate::target::{Target, Value};

/// One contradiction.
pub(super) struct Contradiction {
    pub(super) title: &'static str,
    /// Targets that the contradiction concerns.
    pub(super) ids: &'static [&'static str],
    /// The contradicting statements, and their interpretation here.
    pub(super) text: &'static str,
}

pub(super) const ALL: [Contradiction; 9] = [
    Contradiction {
        title: "Multi-send loses below 32 bytes, and by the fits it never does",
        ids: &["MS-F13", "MS-F14", "MS-M02", "MS-M11"],
        text: "Section 6 explains the loss by t_xmit not being below t_send for tiny messages. By \
               the fits of section 2 the host always needs longer than the interface, so each \
               further destination saves time at every size. What is missing in the fits is a cost \
               per destination: writing the list word by word, and changing headers that a tiny \
               transfer cannot hide. The difference of the fits at 32 bytes is that cost.",
    },
    Contradiction {
        title: "1.85 at 16 KB, or at 8 KB?",
        ids: &["MS-F30", "MS-M04", "MS-M05", "MS-M03"],
        text: "Abstract, introduction and results say 16 KB on 16 nodes, the conclusions 8 KB. \
               Replaying the fits gives a range at 16 KB, by how much of a receive occupies the \
               forwarding host, that lies above 1.85, and one at 8 KB that contains it. Both are \
               computed. And 1.85 is called the most, although 1.86 is reported for 4 nodes.",
    },
    Contradiction {
        title: "\"Up to 58 %\" and 210 %",
        ids: &["BC-M01", "BC-M03", "BC-M04", "BC-M02"],
        text: "58 % cannot be the largest gain if 2 KB gains 210 %, and a reduction cannot exceed \
               100 %. So percentages are old over new, less one; and 58 % is for messages of one \
               slot, since larger ones gain by cutting them into packets as well.",
    },
    Contradiction {
        title: "3.86 times and 4.86 times at 1024 nodes",
        ids: &["BC-F10", "BC-F11", "BC-D01"],
        text: "Section 7.1 prints 4.86 times, everything else 3.86 times better: one figure, as a \
               ratio and less one. From 1.58 at 8 nodes, and a multicast that takes as long at \
               1024 as at 8, 5.27 follows; the simulation of 1024 nodes is near that. For 4.86 \
               the multicast must be slower by the factor of BC-D01, which further switches may \
               explain. The other readings need factors of 1.36, 1.63 or 2.06.",
    },
    Contradiction {
        title: "Co-roots that cost no latency, and 2 us",
        ids: &["BC-M08", "BC-F05", "BC-M09"],
        text: "The design expects none, and by the model the number of co-roots drops out. The \
               measurement shows about 2 us above 32 bytes, which the authors cannot explain. The \
               simulation finds none: the reliable copy leaves after the multicast, so it does \
               not hold that up.",
    },
    Contradiction {
        title: "PM overtakes FM at 400 bytes, or at 225",
        ids: &["PM-F01", "PM-M05", "PM-F02"],
        text: "With a rate of R m / (m + n_half), the stated peaks and half sizes cross at 225 \
               bytes. PM reaches 16 MB/s at 300 bytes by definition, and FM never exceeds 17, so \
               400 would need PM to gain less than 1 MB/s in between. \"About 300\" and \"400\" \
               are read loosely.",
    },
    Contradiction {
        title: "Constants of Quadrics",
        ids: &["CB-X01", "CB-X02", "CB-X03", "CB-F02", "CB-F13"],
        text: "A later paper of the same authors measures 5.60 us at 8 nodes and models 22.13 us \
               at 1024; the slides' constants give other figures for both, since they are an \
               earlier fit. On Myrinet the two agree. The slides are the target.",
    },
    Contradiction {
        title: "The check for in-transit packets: 100 ns or 125 ns",
        ids: &["IT-M01", "IT-M02", "IT-M03"],
        text: "The abstract rounds to about 100 ns; the body has a mean of 125 ns and at most 300 \
               ns. The percentages of section 5 agree with the latter.",
    },
    Contradiction {
        title: "An in-transit buffer costs 0.5 us, or 1.3 us",
        ids: &["IT-F03", "IT-F04", "IT-M04"],
        text: "Earlier simulations assumed 475 ns for detection and set-up. The measurement is 2.7 \
               times that, called \"quite similar\" at first; the text asks for the simulations to \
               be run again.",
    },
];

/// A target's row: id, quantity, stated value, our value, verdict, remarks.
pub(super) fn row(id: &str, judged: &[Judged]) -> Option<[String; 6]> {
    let target = Target::find(id)?;
    let one = judged.iter().find(|one| one.target.id == id)?;
    let ours = one.finding.ours.as_ref().map_or_else(|| "-".to_owned(), Value::to_string);
    Some([
        target.id.clone(),
        format!("{} ({})", target.quantity, target.conditions),
        format!("{} {}", target.value, target.unit),
        ours,
        one.finding.verdict.word().to_owned(),
        one.finding.verdict.reason().unwrap_or(&one.finding.note).to_owned(),
    ])
}
