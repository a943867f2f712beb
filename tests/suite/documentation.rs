//! Keeps the generated documentation current: `docs/gst_plugins_cache.json`, the plugin in the format of GStreamer's
//! gst-hotdoc-plugins-scanner, from which hotdoc makes its pages, and the table of properties in `docs/PROPERTIES.md` and, as
//! `src/element/properties/list.md`, in the element's rustdoc. All are made from the element as it registers itself. With
//! `CUDAGAUSSBLUR_WRITE_DOCS=1` the files are written instead of compared. Also holds the lists of the fields of `stats` and
//! of messages to what the element has and posts.
//!
//! The scanner itself is not in Debian or Ubuntu. Its format is reproduced with its peculiarities.

use std::path::Path;

use crate::common::covered::info;
use crate::common::stream::Stream;
use crate::common::video::as_spec;
use gst::glib;
use gst::glib::gobject_ffi::{GParamSpecDouble, GParamSpecInt, GParamSpecUInt, GParamSpecUInt64};
use gst::prelude::*;
use serde_json::{Map, Value, json};

const PLUGIN: &str = "cudagaussblur";

/// The nicks of the flags in `value`, as the scanner joins them: one flag that has all bits, else from the highest on.
fn flags_nicks(values: &[glib::FlagsValue], value: u32) -> String {
    let exact = values.iter().find(|flag| flag.value() == value);
    let bits = values.iter().rev().filter(|flag| flag.value().is_power_of_two() && value & flag.value() > 0);
    exact.map_or(bits.map(glib::FlagsValue::nick).collect::<Vec<_>>().join("+"), |flag| flag.nick().to_owned())
}

/// A double as printf's `%g`.
fn general(value: f64) -> String {
    let mut text = [0_u8; 32];
    // SAFETY: the buffer has the size passed, which is enough for `%g`, and the format takes one double.
    unsafe { libc::snprintf(text.as_mut_ptr().cast(), text.len(), c"%g".as_ptr(), value) };
    std::ffi::CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
}

/// A property's default, minimum and maximum as the scanner prints them, those that it prints.
fn limits(spec: &glib::ParamSpec, value: &glib::Value) -> [Option<String>; 3] {
    macro_rules! ranged {
        ($spec:ty, $struct:ty, $value:ty, $text:expr) => {
            if let Some(spec) = as_spec::<$struct, $spec>(spec) {
                let of = [value.get::<$value>().unwrap(), spec.minimum, spec.maximum];
                return of.map($text).map(Some);
            }
        };
    }
    // The scanner prints an unsigned number as a signed one.
    ranged!(glib::ParamSpecUInt, GParamSpecUInt, u32, |number| number.cast_signed().to_string());
    ranged!(glib::ParamSpecInt, GParamSpecInt, i32, |number| number.to_string());
    ranged!(glib::ParamSpecUInt64, GParamSpecUInt64, u64, |number| number.to_string());
    ranged!(glib::ParamSpecDouble, GParamSpecDouble, f64, general);
    let default = if let Some((_, value)) = glib::EnumValue::from_value(value) {
        Some(format!("{} ({})", value.nick(), value.value()))
    } else if let Some((class, flags)) = glib::FlagsValue::from_value(value) {
        let bits = flags.iter().fold(0, |bits, flag| bits | flag.value());
        Some(flags_nicks(class.values(), bits))
    } else if let Ok(text) = value.get::<Option<String>>() {
        Some(text.unwrap_or_else(|| "NULL".to_owned()))
    } else if let Ok(flag) = value.get::<bool>() {
        Some(flag.to_string())
    } else if let Ok(structure) = value.get::<gst::Structure>() {
        Some(structure.to_string())
    } else {
        assert_eq!(spec.value_type(), gst::Array::static_type(), "how does the scanner print {}?", spec.name());
        None
    };
    [default, None, None]
}

/// The properties that the element has itself.
fn own_properties(element: &gst::Element) -> impl Iterator<Item = glib::ParamSpec> {
    let own = element.type_();
    element.list_properties().into_iter().filter(move |spec| spec.owner_type() == own)
}

fn property(element: &gst::Element, spec: &glib::ParamSpec) -> Value {
    let has = |flag| spec.flags().contains(flag);
    let states = [
        (gst::PARAM_FLAG_MUTABLE_PLAYING, "playing"),
        (gst::PARAM_FLAG_MUTABLE_PAUSED, "paused"),
        (gst::PARAM_FLAG_MUTABLE_READY, "ready"),
    ];
    let mut property = json!({
        "blurb": spec.blurb().expect("every property has a blurb").to_string(),
        "conditionally-available": has(gst::PARAM_FLAG_CONDITIONALLY_AVAILABLE),
        "construct": has(glib::ParamFlags::CONSTRUCT),
        "construct-only": has(glib::ParamFlags::CONSTRUCT_ONLY),
        "controllable": has(gst::PARAM_FLAG_CONTROLLABLE),
        "mutable": states.into_iter().find(|(flag, _)| has(*flag)).map_or("null", |(_, state)| state),
        "readable": has(glib::ParamFlags::READABLE),
        "type": spec.value_type().name(),
        "writable": has(glib::ParamFlags::WRITABLE),
    });
    let is_read = has(glib::ParamFlags::READABLE) && !has(gst::PARAM_FLAG_DOC_SHOW_DEFAULT);
    let default = if is_read { element.property_value(spec.name()) } else { spec.default_value().clone() };
    let limits = limits(spec, &default);
    for (name, limit) in ["default", "min", "max"].into_iter().zip(limits) {
        if let Some(limit) = limit {
            property[name] = limit.into();
        }
    }
    property
}

fn caps_text(caps: &gst::CapsRef) -> String {
    let one = |(i, (structure, features)): (usize, (&gst::StructureRef, &gst::CapsFeaturesRef))| {
        // The scanner separates only caps with features from those before them.
        let (separator, memory) = if features.is_equal(gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY.as_ref()) {
            ("", String::new())
        } else {
            (if i > 0 { "\n" } else { "" }, format!("({features})"))
        };
        let fields = structure.iter().map(|(name, value)| {
            format!("{:>15}: {}\n", name.as_str(), value.serialize().unwrap().replace("(string)", ""))
        });
        format!("{separator}{}{memory}:\n{}", structure.name(), fields.collect::<String>())
    };
    caps.iter_with_features().enumerate().map(one).collect()
}

fn pad_template(template: &gst::PadTemplate) -> Value {
    json!({
        "caps": caps_text(template.documentation_caps()),
        "direction": format!("{:?}", template.direction()).to_lowercase(),
        "presence": format!("{:?}", template.presence()).to_lowercase(),
    })
}

fn element(factory: &gst::ElementFactory) -> Value {
    let element = factory.create().build().unwrap();
    let hierarchy = std::iter::successors(Some(element.type_()), |of| of.parent()).map(glib::Type::name);
    assert!(element.type_().interfaces().is_empty(), "interfaces are not documented yet");
    assert_eq!(factory.rank(), gst::Rank::NONE, "how does the scanner print other ranks?");
    let templates = element.pad_template_list();
    let mut documented = json!({
        "hierarchy": hierarchy.collect::<Vec<_>>(),
        "pad-templates": templates.iter().map(|it| (it.name_template().into(), pad_template(it))).collect::<Map<_, _>>(),
        "properties": own_properties(&element)
            .map(|spec| (spec.name().into(), property(&element, &spec)))
            .collect::<Map<_, _>>(),
        "rank": "none",
    });
    // The scanner leaves out the long name.
    for key in factory.metadata_keys().into_iter().filter(|key| key != "long-name") {
        documented[key.as_str()] = factory.metadata(&key).into();
    }
    documented
}

/// The values of an enum or flags type; `None` if the plugin does not document the type as its own.
fn values(of: glib::Type) -> Option<Value> {
    of.plugin_api_flags()?;
    let value = |nick: &str, value: String, name: &str| json!({ "desc": name, "name": nick, "value": value });
    if let Some(class) = glib::EnumClass::with_type(of) {
        let values = class.values().iter().map(|it| value(it.nick(), it.value().to_string(), it.name()));
        return Some(json!({ "kind": "enum", "values": values.collect::<Vec<_>>() }));
    }
    let class = glib::FlagsClass::with_type(of)?;
    let values = class.values().iter().map(|it| value(it.nick(), format!("0x{:08x}", it.value()), it.name()));
    Some(json!({ "kind": "flags", "values": values.collect::<Vec<_>>() }))
}

/// All that GStreamer knows about the plugin.
fn cache() -> String {
    let registry = gst::Registry::get();
    let plugin = registry.find_plugin(PLUGIN).unwrap();
    let (mut elements, mut types) = (Map::new(), Map::new());
    for feature in registry.features_by_plugin(PLUGIN) {
        let factory = feature.downcast_ref::<gst::ElementFactory>().expect("only elements are documented yet");
        elements.insert(factory.name().into(), element(factory));
        for spec in own_properties(&factory.create().build().unwrap()) {
            if let Some(values) = values(spec.value_type()) {
                types.insert(spec.value_type().name().to_owned(), values);
            }
        }
    }
    let plugin = json!({
        "description": plugin.description().as_str(),
        "elements": elements,
        "filename": format!("gst{PLUGIN}"),
        "license": plugin.license().as_str(),
        "other-types": types,
        "package": plugin.package().as_str(),
        "source": plugin.source().as_str(),
        "tracers": {},
        "url": plugin.origin().as_str(),
    });
    // Indented by four spaces. Strings have no line breaks in JSON.
    let text = serde_json::to_string_pretty(&json!({ PLUGIN: plugin })).unwrap();
    let indented = text.lines().map(|line| " ".repeat(line.len() - line.trim_start().len()) + line);
    let text = indented.collect::<Vec<_>>().join("\n");
    assert!(!text.contains('%'), "the scanner doubles percent signs; this does not");
    text
}

/// The properties of 0.1.0. Later ones have a comment with `Since`.
const PROPERTIES_OF_0_1_0: usize = 27;

/// The version that added a property after 0.1.0, from a comment in front of the table of properties: `GstCudaGaussBlur:NAME:`,
/// and `Since: VERSION` in a line of its own.
fn since(property: &str) -> Option<&'static str> {
    let start = format!("* GstCudaGaussBlur:{property}:\n");
    let (_, comment) = include_str!("../../src/element/properties/mod.rs").split_once(&start)?;
    let (comment, _) = comment.split_once("*/").unwrap();
    let version = comment.lines().find_map(|line| line.trim_start().strip_prefix("* Since: "));
    Some(version.unwrap_or_else(|| panic!("the comment of {property} has no Since")))
}

/// The table of properties, from what the cache has of them.
fn properties() -> String {
    // A value of `zones` becomes code, because backslashes would look like a part of it.
    let escaped = |text: &str| {
        let special = |c: char| if "\\`*_<>[]|".contains(c) { format!("\\{c}") } else { c.to_string() };
        let plain = |text: &str| text.chars().map(special).collect::<String>();
        let value = text.split_once("<[").and_then(|(before, rest)| Some((before, rest.split_once("]>")?)));
        value.map_or_else(
            || plain(text),
            |(before, (value, after))| format!("{}`<[{value}]>`{}", plain(before), plain(after)),
        )
    };
    let mut text =
        String::from("| property | type | default | range | may change | meaning |\n|---|---|---|---|---|---|\n");
    let element = crate::common::video::element("");
    for spec in own_properties(&element) {
        let cached = property(&element, &spec);
        let of_cache = |field: &str| cached[field].as_str().unwrap_or_default();
        let has = |field: &str| cached[field] == true;
        let [default, least, most] = ["default", "min", "max"].map(of_cache);
        // The largest of each type, as the scanner prints it.
        let is_largest = ["-1", "2147483647", "18446744073709551615", "1.79769e+308"].contains(&most);
        let range = if is_largest { format!("{least} and up") } else { format!("{least} to {most}") };
        let (kind, default, range) = match (of_cache("type"), values(spec.value_type())) {
            (_, Some(values)) => {
                let nicks = values["values"].as_array().unwrap().iter().map(|value| value["name"].as_str().unwrap());
                let kind = if values["kind"] == "enum" { "enum" } else { "flags" };
                (kind, default.split(" (").next().unwrap().to_owned(), nicks.collect::<Vec<_>>().join(", "))
            }
            ("guint", _) => {
                let number = default.parse::<i32>().unwrap().cast_unsigned();
                let is_color = spec.name().ends_with("color");
                ("u32", if is_color { format!("{number:#010x}") } else { number.to_string() }, range)
            }
            ("gint", _) => ("i32", default.to_owned(), range),
            ("guint64", _) => ("u64", default.to_owned(), range),
            ("gdouble", _) => ("f64", default.to_owned(), range),
            ("gboolean", _) => ("bool", default.to_owned(), String::new()),
            ("gchararray", _) => ("string", format!("{:?}", default.replace("NULL", "")), String::new()),
            (other, _) => (other, String::new(), String::new()),
        };
        let mut change = match of_cache("mutable") {
            _ if !has("writable") => "read-only".to_owned(),
            "playing" => "any time".to_owned(),
            "ready" => "stopped".to_owned(),
            other => format!("up to {}", other.to_uppercase()),
        };
        if has("controllable") {
            change += ", controllable";
        }
        let blurb = escaped(of_cache("blurb"));
        let since = since(spec.name()).map_or_else(String::new, |version| format!(". Since {version}"));
        text += &format!("| `{}` | {kind} | {default} | {range} | {change} | {blurb}{since} |\n", spec.name());
    }
    text
}

/// Compares a generated text with its file, or writes the file.
fn check(file: &str, committed: &str, text: &str) {
    if std::env::var_os("CUDAGAUSSBLUR_WRITE_DOCS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(file), text).unwrap();
        return;
    }
    let difference = text.lines().zip(committed.lines()).find(|(new, old)| new != old);
    assert!(
        text == committed,
        "{file} is out of date, first in {difference:#?}\n\
            CUDAGAUSSBLUR_WRITE_DOCS=1 cargo test --test suite documentation"
    );
}

#[test]
fn the_documentation_cache_is_current() {
    crate::common::video::init();
    check("docs/gst_plugins_cache.json", include_str!("../../docs/gst_plugins_cache.json"), &cache());
}

#[test]
fn later_properties_say_since_when_they_exist() {
    let element = crate::common::video::element("");
    let first = own_properties(&element).filter(|spec| since(spec.name()).is_none()).count();
    assert_eq!(first, PROPERTIES_OF_0_1_0, "properties without a Since (CONTRIBUTING.md)");
}

#[test]
fn the_tables_of_properties_are_current() {
    let table = properties();
    check("src/element/properties/list.md", include_str!("../../src/element/properties/list.md"), &table);
    let page = include_str!("../../docs/PROPERTIES.md");
    let (before, rest) = page.split_once("<!-- generated").expect("where the table begins");
    let (comment, rest) = rest.split_once('\n').unwrap();
    let (_, after) = rest.split_once("<!-- end of the generated table").expect("where the table ends");
    let page_now = format!("{before}<!-- generated{comment}\n\n{table}\n<!-- end of the generated table{after}");
    check("docs/PROPERTIES.md", page, &page_now);
}

/// The rows of the tables in a section: the names in the first cell, and the second cell.
pub(super) fn rows<'a>(page: &'a str, heading: &str) -> Vec<(Vec<&'a str>, &'a str)> {
    let (_, section) = page.split_once(heading).unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    cells
        .map(|(names, rest)| (names.split('`').skip(1).step_by(2).collect(), rest.split(" |").next().unwrap()))
        .collect()
}

#[test]
fn every_field_of_stats_is_documented() {
    let rows = rows(include_str!("../../docs/PROPERTIES.md"), "\n## The stats property\n");
    let mut documented: Vec<&str> = rows.into_iter().flat_map(|(names, _)| names).collect();
    // Beside fields, the table has values and file names in these cells.
    documented.retain(|name| !name.contains('.') && *name != "stats");
    let stats = crate::common::video::element("").property::<gst::Structure>("stats");
    let mut fields: Vec<&str> = stats.fields().map(gst::glib::GStr::as_str).collect();
    documented.sort_unstable();
    fields.sort_unstable();
    assert_eq!(documented, fields);
}

/// The value of a field as JSON.
fn json_of(value: &glib::Value) -> Value {
    if let Ok(array) = value.get::<gst::Array>() {
        array.as_slice().iter().map(|one| json_of(one)).collect()
    } else if let Ok(structure) = value.get::<gst::Structure>() {
        structure.iter().map(|(name, value)| (name.to_string(), json_of(value))).collect::<Map<_, _>>().into()
    } else if let Ok(text) = value.get::<String>() {
        text.into()
    } else {
        // Numbers and truth values are the same texts in JSON.
        serde_json::from_str(&value.serialize().unwrap()).unwrap()
    }
}

/// What docs/MESSAGES.md shows in Rust.
fn print_regions(message: &gst::MessageRef) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(frame) = message.structure().filter(|frame| frame.name() == "cudagaussblur") {
        for region in frame.get::<gst::Array>("regions")?.as_slice() {
            let region = region.get::<gst::Structure>()?;
            println!("{} at {} {}", region.get::<&str>("origin")?, region.get::<u32>("x")?, region.get::<u32>("y")?);
        }
    }
    Ok(())
}

/// The example in docs/MESSAGES.md is the message of this frame, and its tables have every field with its type.
#[test]
fn the_message_about_a_frame_is_as_documented() {
    let page = include_str!("../../docs/MESSAGES.md");
    let (_, example) = page.split_once("```json\n").expect("an example");
    let example: Value = serde_json::from_str(example.split("```").next().unwrap()).unwrap();
    let info = info(gst_video::VideoFormat::Nv12, [640, 400]);
    let zone = "zones=<[zone,name=door,x=0.0,y=0.0,width=0.25,height=0.5]>";
    let mut stream = Stream::of(&info, &format!("post-messages=true cover=fill {zone}"));
    stream.enter("face:100x120+400+100");
    let message = stream.posted(gst::MessageType::Element).pop().expect("a message");
    print_regions(&message).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, shown) = page.split_once("```rust\n").expect("code in Rust");
    let shown = shown.split("```").next().unwrap();
    assert!(words(include_str!("documentation.rs")).contains(&words(shown)), "{shown} is not what print_regions does");
    let message = message.structure().unwrap().to_owned();
    assert_eq!(json_of(&message.to_value()), example, "docs/MESSAGES.md has another example");

    let rows = rows(page, "\n## What was covered in a frame\n");
    let check = |structure: &gst::StructureRef| {
        for (field, value) in structure.iter() {
            let (_, kind) = rows.iter().find(|(names, _)| names.contains(&field.as_str())).expect("a row");
            let kind = if *kind == "string" { "gchararray" } else { kind };
            assert_eq!(value.type_().name(), kind, "{field}");
        }
    };
    check(&message);
    let regions = message.get::<gst::Array>("regions").unwrap();
    regions.as_slice().iter().for_each(|region| check(&region.get::<gst::Structure>().unwrap()));
    let posted = message.fields().count() + 11;
    assert_eq!(rows.iter().map(|(names, _)| names.len()).sum::<usize>(), posted, "fields that are not posted");
}
