//! PURE: an offer in the form that str0m reads, and its answer with what the client expects.

/// The line of an SDP with the names of the sections that share a connection.
const BUNDLE: &str = "a=group:BUNDLE";

/// The line with the name of a section.
const MID: &str = "a=mid:";

/// The header extension with which a packet names its section (RFC 8843).
const MID_OF_PACKET: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";

/// The longest name of a section that str0m keeps, bytes.
const LONGEST_NAME: usize = 16;

/// The only protocol of media that str0m reads. Others are to be taken for it (RFC 8829, section 5.1.2).
const PROTOCOL: &str = "UDP/TLS/RTP/SAVPF";

/// Lines that str0m reads in one place at most, and of which nothing is used.
const UNUSED: [&str; 4] = ["b=", "c=", "i=", "k="];

/// An offer in the form that str0m reads: at the first line that it does not expect, it stops. Sections whose names
/// it would change have others, and their packets are not to carry names: it would neither know nor write them.
pub(super) fn readable(offer: &str) -> String {
    let offered = sections(offer);
    let names = names(&offered);
    let named = |word: &str| {
        let mut names = names.iter();
        let found = names.find(|(mid, _)| *mid == word);
        found.map_or_else(|| word.to_owned(), |(_, name)| name.clone())
    };
    let mut told = Vec::new();
    for (section, (mid, name)) in offered.iter().zip(&names) {
        let is_renamed = *mid != name.as_str();
        for line in section {
            let is_unused = UNUSED.iter().any(|head| line.starts_with(head));
            if is_unused || (is_renamed && line.contains(MID_OF_PACKET)) {
                continue;
            }
            told.push(if is_media(line) {
                with_protocol(line, PROTOCOL)
            } else if line.starts_with(MID) {
                format!("{MID}{name}")
            } else if line.starts_with(BUNDLE) {
                let words: Vec<String> = line.split_whitespace().map(named).collect();
                words.join(" ")
            } else {
                (*line).to_owned()
            });
        }
    }
    told.join("\r\n") + "\r\n"
}

/// The answer to an offer, from str0m's to its readable form: with the offer's names and protocols, and with the video
/// of its group accepted in all formats that the client offers, and inactive. str0m rejects it with a section without a
/// codec, for which some clients take none of the answer.
pub(super) fn answer(offer: &str, answer: &str) -> String {
    let offered = sections(offer);
    let names = names(&offered);
    let bundles = offered[0].iter();
    let bundles = bundles.filter_map(|line| line.strip_prefix(BUNDLE));
    let bundled: Vec<&str> = bundles.flat_map(str::split_whitespace).collect();
    // In the order of the sections, as str0m and others require.
    let mut group = BUNDLE.to_owned();
    let mut told = Vec::new();
    for section in sections(answer) {
        let name = mid_of(&section);
        let mut asked = offered.iter().zip(&names).skip(1);
        let asked = asked.find(|(_, (_, other))| name == Some(other.as_str()));
        let Some((asked, (mid, _))) = asked else {
            told.extend(section.into_iter().map(str::to_owned));
            continue;
        };
        let renamed = |line: &&str| match line.starts_with(MID) {
            true => format!("{MID}{mid}"),
            false => (*line).to_owned(),
        };
        let protocol = asked[0].split(' ').nth(2).unwrap_or(PROTOCOL);
        let head = section[0];
        let is_video = head.starts_with("m=video ") && bundled.contains(mid);
        let is_rejected = head.split(' ').nth(1) == Some("0");
        if is_video || !is_rejected {
            group = format!("{group} {mid}");
        }
        if !is_video {
            told.push(match is_media(head) {
                true => with_protocol(head, protocol),
                false => head.to_owned(),
            });
            told.extend(section[1..].iter().map(renamed));
            continue;
        }
        let formats: Vec<&str> = asked[0].split_whitespace().skip(3).collect();
        // Port 0, or to be none of the group, would reject it.
        told.push(format!("m=video 9 {protocol} {}", formats.join(" ")));
        let sends = ["a=inactive", "a=msid", "a=recv", "a=send", "a=ssrc"];
        let rest = section[1..].iter();
        let rest = rest.filter(|line| !sends.iter().any(|head| line.starts_with(head)));
        let described = ["a=rtpmap:", "a=fmtp:"];
        let formats = asked.iter();
        let formats = formats.filter(|line| described.iter().any(|head| line.starts_with(head)));
        told.extend(rest.chain(formats).map(renamed));
        told.push("a=inactive".to_owned());
    }
    for line in told.iter_mut().filter(|line| line.starts_with(BUNDLE)) {
        line.clone_from(&group);
    }
    told.join("\r\n") + "\r\n"
}

/// The name of each section of an offer, and the one by which str0m knows it: others than those of letters and digits
/// it changes and shortens. Empty for the session.
fn names<'a>(offered: &[Vec<&'a str>]) -> Vec<(&'a str, String)> {
    let mids = offered
        .iter()
        .map(|section| mid_of(section).unwrap_or_default());
    let named = mids.enumerate().map(|(at, mid)| {
        let is_plain = mid.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match is_plain && mid.len() <= LONGEST_NAME {
            true => (mid, mid.to_owned()),
            false => (mid, format!("section{at}")),
        }
    });
    named.collect()
}

/// The name of a section of an SDP.
fn mid_of<'a>(section: &[&'a str]) -> Option<&'a str> {
    let mut lines = section.iter();
    lines.find_map(|line| line.strip_prefix(MID)).map(str::trim)
}

/// Whether a line begins a section of audio or video.
fn is_media(line: &str) -> bool {
    line.starts_with("m=audio ") || line.starts_with("m=video ")
}

/// The first line of a section, with another protocol.
fn with_protocol(head: &str, protocol: &str) -> String {
    let mut fields: Vec<&str> = head.split(' ').collect();
    if let Some(field) = fields.get_mut(2) {
        *field = protocol;
    }
    fields.join(" ")
}

/// The lines of an SDP: those of the session, and those of each medium.
fn sections(sdp: &str) -> Vec<Vec<&str>> {
    let mut sections = vec![Vec::new()];
    for line in sdp.lines() {
        match sections.last_mut() {
            Some(section) if !line.starts_with("m=") => section.push(line),
            _ => sections.push(vec![line]),
        }
    }
    sections
}
