//! Buffers of a plan: values whose lives do not overlap share one.
//!
//! A buffer is free after the last use of its value and is taken again by the next value of the same rows and kind.
//! Results get theirs before operands give theirs up, so no step writes what it reads.

use std::collections::HashMap;

use unisonic_core::plan::{Buffer, BufferId, BufferKind};

use crate::graph::{Element, Graph, Op, Type};

/// The buffers, and the buffer of each value. The output's buffer is its own and the last; what the host gives has its own
/// too, as it is there before any step. Token ids have none; their entry means nothing.
pub fn assign(graph: &Graph) -> (Vec<Buffer>, Vec<BufferId>) {
    let mut buffers = Vec::new();
    let mut buffer_of = vec![BufferId(0); graph.values.len()];
    let mut free: HashMap<Type, Vec<BufferId>> = HashMap::new();
    let mut uses = graph.use_counts();
    for node in &graph.nodes {
        let given = matches!(node.op, Op::Input);
        for &result in node.results.iter().filter(|&&result| result != graph.output) {
            let ty = graph.ty(result);
            let Some(buffer) = buffer(ty) else { continue };
            let reused = free.get_mut(&ty).filter(|_| !given).and_then(Vec::pop);
            // A use that no node ends.
            uses[result.index()] += usize::from(given);
            buffer_of[result.index()] = reused.unwrap_or_else(|| {
                buffers.push(buffer);
                BufferId((buffers.len() - 1) as u32)
            });
        }
        for &input in &node.inputs {
            uses[input.index()] -= 1;
        }
        // An operand that is named twice is given up once.
        let mut ended: Vec<_> = node.inputs.iter().chain(&node.results).collect();
        ended.sort_unstable();
        ended.dedup();
        for &value in ended.into_iter().filter(|value| uses[value.index()] == 0) {
            free.entry(graph.ty(value)).or_default().push(buffer_of[value.index()]);
        }
    }
    if let Some(buffer) = buffer(graph.ty(graph.output)) {
        buffers.push(buffer);
        buffer_of[graph.output.index()] = BufferId((buffers.len() - 1) as u32);
    }
    (buffers, buffer_of)
}

fn buffer(ty: Type) -> Option<Buffer> {
    let kind = match ty.element {
        Element::U32 => return None,
        Element::F32 { width } => BufferKind::F32 { width },
        Element::A16 { width } => BufferKind::A16 { width },
        Element::Q16 { heads, head_len } => BufferKind::Q16 { heads, head_len },
    };
    Some(Buffer { rows: ty.rows, slots: ty.slots, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps before the node that stands for the host's rows have not written there, and steps after it do not.
    #[test]
    fn the_input_shares_no_buffer() {
        let text = "\
graph tiny vocab=4 context=16 output=%6
%0:all u32 = tokens() label=tokens
%1:all f32[4] = embed(%0) table=t[4x4] label=embd
%2:all f32[4] = add(%1, %1) label=unused
%3:all f32[4] = input() label=input
%4:all f32[4] = add(%3, %3) label=sum
%5:all f32[4] = add(%4, %1) label=sum_too
%6:all f32[4] = add(%5, %5) label=output
";
        let graph = Graph::parse(text).expect("a graph");
        let (_, buffer_of) = assign(&graph);
        let of_values: Vec<u32> = buffer_of[1..].iter().map(|buffer| buffer.0).collect();
        assert_eq!(of_values, [0, 1, 2, 1, 3, 4]);
    }

    /// Being the output is a use that no node ends.
    #[test]
    fn the_output_shares_no_buffer() {
        let text = "\
graph tiny vocab=4 context=16 output=%2
%0:all u32 = tokens() label=tokens
%1:all f32[4] = embed(%0) table=t[4x4] label=embd
%2:all f32[4] = add(%1, %1) label=output
%3:all f32[4] = add(%1, %2) label=unused
%4:all f32[4] = add(%1, %1) label=unused_too
";
        let graph = Graph::parse(text).expect("a graph");
        let (buffers, buffer_of) = assign(&graph);
        let of_values: Vec<u32> = buffer_of[1..].iter().map(|buffer| buffer.0).collect();
        assert_eq!((buffers.len(), of_values), (3, vec![0, 2, 1, 1]));
    }
}
