//! Operations: types by the table, and attributes.

use super::super::kernel::{Attr, Inst, Object, ObjectId, ParamId, Space, Value};
use super::super::op::{AttrKind, CLUSTER_WIDTHS, COLUMN_WORDS, Family, MATRIX_CLUSTER, Op, Pattern};
use super::super::types::{Scalar, Type};
use super::{Rule, Verifier};

impl<'k> Verifier<'k> {
    pub(super) fn inst(&mut self, inst: &Inst) {
        let at = self.kernel.inst_text(inst);
        let faults_before = self.faults.len();
        for &operand in &inst.operands {
            self.usable(&at, operand, None);
        }
        if let Some(result) = inst.result {
            self.define(&at, result);
        }
        if self.faults.len() > faults_before {
            return;
        }
        let ty = |value: Value| self.kernel.types[value.index()];
        let types: Vec<Type> = inst.operands.iter().copied().map(ty).collect();
        let result = inst.result.map(ty);
        let stated = if inst.op.row().result == Some(Pattern::Stated) { result } else { None };
        match inst.op.row().check(&types, stated) {
            Ok(expected) if expected == result => self.attribute(inst, &at, &types, result),
            Ok(expected) => {
                let text = |ty: Option<Type>| ty.map_or("nothing".to_owned(), |ty| ty.to_string());
                let problem = format!("the result is {}, expected {}", text(result), text(expected));
                self.fault(Rule::Type, at, problem);
            }
            Err(problem) => self.fault(Rule::Type, at, problem),
        }
    }

    fn attribute(&mut self, inst: &Inst, at: &str, types: &[Type], result: Option<Type>) {
        if inst.op.row().family == Family::Matrix {
            self.whole_clusters(at, MATRIX_CLUSTER);
        }
        match (inst.op.row().attr, inst.attr) {
            (AttrKind::None, Attr::None) => {}
            (AttrKind::Word, Attr::Word(word)) => {
                if word > 1 && result.is_some_and(|ty| ty.scalar == Scalar::Bool) {
                    self.fault(Rule::Attribute, at, format!("0x{word:x} is above 0x1"));
                }
            }
            (AttrKind::Param, Attr::Param(id)) => self.param(at, id, result),
            (AttrKind::Object, Attr::Object(id)) => {
                let value = if inst.op == Op::Store { types.get(1).copied() } else { result };
                self.access(at, inst.op, id, value);
            }
            (AttrKind::Copy, Attr::Copy { to, from }) => self.copy(at, to, from),
            (AttrKind::Columns, Attr::Columns { of, stride }) => self.columns(at, of, stride),
            (AttrKind::Index, Attr::Index(_)) if inst.op == Op::CopyWait => {}
            (AttrKind::Index, Attr::Index(index)) => {
                let len = match inst.op {
                    Op::Byte => 4,
                    Op::Half => 2,
                    _ => types.first().map_or(0, |ty| u32::from(ty.width)),
                };
                if index >= len {
                    self.fault(Rule::Attribute, at, format!("there is no part {index}"));
                }
            }
            (AttrKind::Selector, Attr::Selector(selector)) => {
                if (0..4).any(|digit| selector >> (4 * digit) & 15 > 7) {
                    self.fault(Rule::Attribute, at, "the digits of a selector are 0 to 7");
                }
            }
            (AttrKind::Cluster, Attr::Cluster { width, lane }) => self.cluster(at, width, lane),
            _ => self.fault(Rule::Attribute, at, "the attribute is of another operation"),
        }
    }

    fn param(&mut self, at: &str, id: ParamId, result: Option<Type>) {
        match self.kernel.params.get(id.index()) {
            Some(param) if result == Some(param.scalar.into()) => {}
            Some(param) => self.fault(Rule::Type, at, format!("the parameter is {}", param.scalar.name())),
            None => self.fault(Rule::Attribute, at, "there is no such parameter"),
        }
    }

    /// A load's result or a store's operand, and the object.
    fn access(&mut self, at: &str, op: Op, id: ObjectId, value: Option<Type>) {
        let Some(object) = self.object(at, id) else { return };
        if value.is_some_and(|ty| ty.scalar != object.elem) {
            self.fault(Rule::Access, at, format!("the elements are {}", object.elem.name()));
        }
        let (is_allowed, cannot) = match op {
            Op::Store => (object.space.is_writable(), "written"),
            Op::Prefetch => (object.space == Space::Read, "prefetched"),
            _ => (object.space.is_readable(), "read"),
        };
        if !is_allowed {
            self.fault(Rule::Access, at, format!("`{}` is not to be {cannot}", object.name));
        }
    }

    fn copy(&mut self, at: &str, to: ObjectId, from: ObjectId) {
        let (Some(to), Some(from)) = (self.object(at, to), self.object(at, from)) else { return };
        if !matches!(to.space, Space::Shared { .. }) || from.space != Space::Read {
            self.fault(Rule::Access, at, "copies go from a buffer that is read to shared memory");
        }
        if to.elem != from.elem {
            let problem = format!("the elements are {} and {}", from.elem.name(), to.elem.name());
            self.fault(Rule::Access, at, problem);
        }
    }

    fn columns(&mut self, at: &str, of: ObjectId, stride: u32) {
        let Some(object) = self.object(at, of) else { return };
        if !matches!(object.space, Space::Shared { .. }) || object.elem != Scalar::I8x4 {
            self.fault(Rule::Access, at, "matrices are loaded from shared memory of i8x4");
        }
        if stride < COLUMN_WORDS || !stride.is_multiple_of(4) {
            let problem = format!("a stride is a multiple of 4 from {COLUMN_WORDS} on, not {stride}");
            self.fault(Rule::Attribute, at, problem);
        }
    }

    fn cluster(&mut self, at: &str, width: u32, lane: u32) {
        if !CLUSTER_WIDTHS.contains(&width) || lane >= width {
            let problem =
                format!("clusters have 8, 16 or 32 lanes, and lanes are below that; {lane} of {width}");
            return self.fault(Rule::Attribute, at, problem);
        }
        self.whole_clusters(at, width);
    }

    fn whole_clusters(&mut self, at: &str, width: u32) {
        let workgroup = self.kernel.workgroup;
        if !workgroup.is_multiple_of(width) {
            let problem = format!("a workgroup of {workgroup} is not whole clusters of {width}");
            self.fault(Rule::Cluster, at, problem);
        }
    }

    fn object(&mut self, at: &str, id: ObjectId) -> Option<&'k Object> {
        let object = self.kernel.objects.get(id.index());
        if object.is_none() {
            self.fault(Rule::Attribute, at, "there is no such object");
        }
        object
    }
}
