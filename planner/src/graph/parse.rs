//! The text form of graphs, read: the inverse of `print`. It checks the form only; rules are the verifier's.

use std::str::FromStr;

use unisonic_core::plan::{
    Activation, Denominator, KvLayer, KvLayerId, RopeStyle, RopeTableId, Rows, TensorPart,
};

use super::{Element, Graph, HeadNorm, Node, Op, RopeScaling, RopeSpec, Shape, Type, ValueId, WeightRef};

/// A text that is not a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What was expected.
    pub reason: String,
}

type Parsed<T> = Result<T, String>;

impl Graph {
    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Graph, ParseError> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let at = |line: usize| move |reason| ParseError { line: line + 1, reason };
        let (first, line) = lines.next().ok_or_else(|| at(0)("expected a graph".to_owned()))?;
        let mut graph = header(line).map_err(at(first))?;
        for (number, line) in lines {
            let parsed = if let Some(rest) = line.strip_prefix("rope ") {
                rope_spec(rest, graph.rope_tables.len()).map(|spec| graph.rope_tables.push(spec))
            } else if let Some(rest) = line.strip_prefix("kv ") {
                kv_layer(rest, graph.kv_layers.len()).map(|layer| graph.kv_layers.push(layer))
            } else {
                node(line, &mut graph)
            };
            parsed.map_err(at(number))?;
        }
        Ok(graph)
    }
}

fn header(line: &str) -> Parsed<Graph> {
    let rest = line.strip_prefix("graph ").ok_or("expected `graph ARCHITECTURE …`")?;
    let (architecture, rest) = word(rest);
    let mut attributes = Attributes::new(rest)?;
    let graph = Graph {
        architecture: architecture.to_owned(),
        vocab_len: attributes.number("vocab")?,
        context_len: attributes.number("context")?,
        rope_tables: Vec::new(),
        kv_layers: Vec::new(),
        values: Vec::new(),
        nodes: Vec::new(),
        output: value_id(attributes.take("output")?)?,
    };
    attributes.finish()?;
    Ok(graph)
}

fn rope_spec(rest: &str, expected_id: usize) -> Parsed<RopeSpec> {
    let (style, rest) = word(numbered(rest, expected_id)?);
    let mut attributes = Attributes::new(rest)?;
    let spec = RopeSpec {
        style: match style {
            "interleaved" => RopeStyle::Interleaved,
            "half_split" => RopeStyle::HalfSplit,
            other => return Err(format!("`{other}` is no RoPE style")),
        },
        rotary_len: attributes.number("rotary")?,
        base: attributes.number("base")?,
        scaling: match attributes.take("scaling")? {
            "none" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: attributes.number("factor")? },
            "yarn" => RopeScaling::Yarn {
                factor: attributes.number("factor")?,
                original_context_len: attributes.number("original_context")?,
            },
            other => return Err(format!("`{other}` is no RoPE scaling")),
        },
        attention_factor: attributes.number("attention_factor")?,
        factors: attributes.maybe("factors").map(weight).transpose()?,
    };
    attributes.finish()?;
    Ok(spec)
}

fn kv_layer(rest: &str, expected_id: usize) -> Parsed<KvLayer> {
    let (heads, head_len) = pair(numbered(rest, expected_id)?.trim())?;
    Ok(KvLayer { heads, head_len })
}

/// `[results = ] op(inputs) key=value …`; types of results are appended to the graph.
fn node(line: &str, graph: &mut Graph) -> Parsed<()> {
    let (open, close) = (line.find('('), line.find(')'));
    let (Some(open), Some(close)) = (open, close) else { return Err("expected `op(inputs)`".to_owned()) };
    let head = &line[..open];
    let inputs = line.get(open + 1..close).ok_or("`)` before `(`")?;
    let (defined, name) = head.rsplit_once(" = ").map_or(("", head), |(defined, name)| (defined, name));
    let mut results = Vec::new();
    for result in list(defined) {
        let (id, ty) = result.split_once(':').ok_or("expected `%ID:TYPE`")?;
        let id = value_id(id)?;
        if id.index() != graph.values.len() {
            return Err(format!("{id} defined, but the next value is %{}", graph.values.len()));
        }
        graph.values.push(value_type(ty)?);
        results.push(id);
    }
    let mut attributes = Attributes::new(&line[close + 1..])?;
    let node = Node {
        op: op(name, &mut attributes)?,
        label: attributes.take("label")?.to_owned(),
        inputs: list(inputs).map(value_id).collect::<Parsed<_>>()?,
        results,
    };
    attributes.finish()?;
    graph.nodes.push(node);
    Ok(())
}

fn op(name: &str, attributes: &mut Attributes<'_>) -> Parsed<Op> {
    Ok(match name {
        "tokens" => Op::Tokens,
        "input" => Op::Input,
        "embed" => Op::Embed {
            table: weight(attributes.take("table")?)?,
            scale: attributes.maybe("scale").map(number).transpose()?,
        },
        "embed_positions" => Op::EmbedPositions { table: weight(attributes.take("table")?)? },
        "layer_norm" => Op::LayerNorm {
            weight: weight(attributes.take("weight")?)?,
            bias: weight(attributes.take("bias")?)?,
            eps: attributes.number("eps")?,
        },
        "gelu" => Op::Gelu,
        "route" => Op::Route {
            router: weight(attributes.take("router")?)?,
            denominator: match attributes.take("denominator")? {
                "chosen" => Denominator::Chosen,
                "all" => Denominator::All,
                other => return Err(format!("`{other}` is no denominator")),
            },
        },
        "expert_linear" => Op::ExpertLinear { weight: weight(attributes.take("weight")?)? },
        "sum_experts" => Op::SumExperts,
        "add_shared" => Op::AddShared { gate: weight(attributes.take("gate")?)? },
        "rms_norm" => {
            Op::RmsNorm { weight: weight(attributes.take("weight")?)?, eps: attributes.number("eps")? }
        }
        "head_norm" => {
            let weight = attributes.maybe("norm").map(weight).transpose()?;
            let head_len = match weight.as_ref().map(|weight| weight.shape) {
                Some(Shape::Vector(len)) => len,
                Some(Shape::Matrix { .. }) => return Err("expected a vector as `norm=`".to_owned()),
                None => attributes.number("head_len")?,
            };
            Op::HeadNorm { head_len, weight, eps: attributes.number("eps")? }
        }
        "rope" => Op::Rope {
            table: RopeTableId(attributes.number("rope")?),
            head_len: attributes.number("head_len")?,
        },
        "linear" => Op::Linear {
            weight: weight(attributes.take("weight")?)?,
            bias: attributes.maybe("bias").map(weight).transpose()?,
            head: attributes.maybe("head").map(number).transpose()?.unwrap_or(false),
        },
        "add" => Op::Add,
        "quantize" => Op::Quantize,
        "prepare_query" => Op::PrepareQuery { norm: head_norm(attributes)?, rope: rope(attributes)? },
        "write_kv" => Op::WriteKv {
            norm: head_norm(attributes)?,
            rope: rope(attributes)?,
            value_eps: attributes.maybe("value_eps").map(number).transpose()?,
            layer: KvLayerId(attributes.number("kv")?),
        },
        "attention" => Op::Attention {
            layer: KvLayerId(attributes.number("kv")?),
            kappa: attributes.number("kappa")?,
            window: attributes.maybe("window").map(number).transpose()?,
            soft_cap: attributes.maybe("soft_cap").map(number).transpose()?,
        },
        "gate" => Op::Gate {
            activation: match attributes.take("activation")? {
                "silu" => Activation::Silu,
                "gelu" => Activation::Gelu,
                other => return Err(format!("`{other}` is no activation")),
            },
            part: attributes.maybe("part").map(number).transpose()?.unwrap_or(0),
        },
        "scale" => Op::Scale { scale: weight(attributes.take("scale")?)? },
        "select_outputs" => Op::SelectOutputs,
        "soft_cap" => Op::SoftCap { cap: attributes.number("cap")? },
        other => return Err(format!("`{other}` is no operation")),
    })
}

fn head_norm(attributes: &mut Attributes<'_>) -> Parsed<Option<HeadNorm>> {
    let Some(text) = attributes.maybe("norm") else { return Ok(None) };
    Ok(Some(HeadNorm { weight: weight(text)?, eps: attributes.number("eps")? }))
}

fn rope(attributes: &mut Attributes<'_>) -> Parsed<Option<RopeTableId>> {
    Ok(attributes.maybe("rope").map(number).transpose()?.map(RopeTableId))
}

fn value_type(text: &str) -> Parsed<Type> {
    let (rows, element) = text.split_once(' ').ok_or("expected `ROWS ELEMENT`")?;
    let (rows, slots) = match rows.split_once('*') {
        Some((rows, slots)) => (rows, number(slots)?),
        None => (rows, 1),
    };
    let rows = match rows {
        "all" => Rows::All,
        "outputs" => Rows::Outputs,
        other => return Err(format!("`{other}` is neither `all` nor `outputs`")),
    };
    let (name, sizes) = element.split_once('[').map_or((element, ""), |(n, s)| (n, s.trim_end_matches(']')));
    let element = match name {
        "u32" => Element::U32,
        "f32" => Element::F32 { width: number(sizes)? },
        "a16" => Element::A16 { width: number(sizes)? },
        "q16" => {
            let (heads, head_len) = pair(sizes)?;
            Element::Q16 { heads, head_len }
        }
        other => return Err(format!("`{other}` is no element type")),
    };
    Ok(Type { rows, slots, element })
}

fn weight(text: &str) -> Parsed<WeightRef> {
    let (text, part) = match text.split_once('@') {
        Some((text, part)) => (text, Some(tensor_part(part)?)),
        None => (text, None),
    };
    let (tensor, sizes) = text.split_once('[').ok_or("expected `TENSOR[SHAPE]`")?;
    let sizes = sizes.strip_suffix(']').ok_or("expected `]`")?;
    let shape = match sizes.contains('x') {
        true => {
            let (rows, cols) = pair(sizes)?;
            Shape::Matrix { rows, cols }
        }
        false => Shape::Vector(number(sizes)?),
    };
    Ok(WeightRef { tensor: tensor.to_owned(), shape, part })
}

fn tensor_part(text: &str) -> Parsed<TensorPart> {
    let (first, len) = text.split_once('/').ok_or("expected `@FIRST/LEN`")?;
    Ok(TensorPart { first: number(first)?, len: number(len)? })
}

fn value_id(text: &str) -> Parsed<ValueId> {
    number(text.strip_prefix('%').ok_or("expected `%ID`")?).map(ValueId)
}

fn pair(text: &str) -> Parsed<(u32, u32)> {
    let (a, b) = text.split_once('x').ok_or("expected `AxB`")?;
    Ok((number(a)?, number(b)?))
}

fn number<T: FromStr>(text: &str) -> Parsed<T> {
    text.parse().map_err(|_| format!("`{text}` is no {}", std::any::type_name::<T>()))
}

fn numbered(rest: &str, expected: usize) -> Parsed<&str> {
    let (id, rest) = word(rest);
    match number::<usize>(id)? == expected {
        true => Ok(rest),
        false => Err(format!("expected number {expected}, found {id}")),
    }
}

fn word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(", ").filter(|item| !item.is_empty())
}

/// `key=value` words; each must be taken once.
struct Attributes<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Attributes<'a> {
    fn new(text: &'a str) -> Parsed<Self> {
        let split =
            |word: &'a str| word.split_once('=').ok_or_else(|| format!("`{word}` is not `KEY=VALUE`"));
        text.split_whitespace().map(split).collect::<Parsed<_>>().map(Attributes)
    }

    fn maybe(&mut self, key: &str) -> Option<&'a str> {
        let index = self.0.iter().position(|(k, _)| *k == key)?;
        Some(self.0.remove(index).1)
    }

    fn take(&mut self, key: &str) -> Parsed<&'a str> {
        self.maybe(key).ok_or_else(|| format!("expected `{key}=`"))
    }

    fn number<T: FromStr>(&mut self, key: &str) -> Parsed<T> {
        number(self.take(key)?)
    }

    fn finish(self) -> Parsed<()> {
        self.0.first().map_or(Ok(()), |(key, _)| Err(format!("`{key}=` does not belong here")))
    }
}
