//! Builds graphs operation by operation: types of results follow from those of the operands, and a wrong operand is
//! found at the call that has it.

use unisonic_core::plan::{Denominator, KvLayer, KvLayerId, RopeTableId, Rows};

use super::{
    Contract, Element, Graph, Node, Op, RopeSpec, Shape, Type, ValueId, Violation, Violations, WeightRef,
};

/// A graph that is being made.
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    graph: Graph,
}

impl GraphBuilder {
    /// A graph without operations, for token ids below `vocab_len` and sequences of `context_len` rows.
    pub fn new(architecture: &str, vocab_len: u32, context_len: u32) -> Self {
        let graph = Graph {
            architecture: architecture.to_owned(),
            vocab_len,
            context_len,
            rope_tables: Vec::new(),
            kv_layers: Vec::new(),
            values: Vec::new(),
            nodes: Vec::new(),
            output: ValueId(0),
        };
        GraphBuilder { graph }
    }

    /// To go on with a graph, which holds to all rules.
    pub fn of(graph: Graph) -> Result<Self, Violations> {
        graph.verify(Contract::default())?;
        Ok(GraphBuilder { graph })
    }

    /// KV caches so far.
    pub fn kv_layers(&self) -> &[KvLayer] {
        &self.graph.kv_layers
    }

    /// Adds a position table.
    pub fn rope_table(&mut self, spec: RopeSpec) -> RopeTableId {
        self.graph.rope_tables.push(spec);
        RopeTableId((self.graph.rope_tables.len() - 1) as u32)
    }

    /// Adds a KV cache.
    pub fn kv_layer(&mut self, layer: KvLayer) -> KvLayerId {
        self.graph.kv_layers.push(layer);
        KvLayerId((self.graph.kv_layers.len() - 1) as u32)
    }

    /// Type of a value; none if there is no such value.
    pub fn ty(&self, value: ValueId) -> Option<Type> {
        self.graph.values.get(value.index()).copied()
    }

    /// The operations so far.
    pub fn nodes(&self) -> &[Node] {
        &self.graph.nodes
    }

    /// Rows of `width` values that the host gives.
    pub fn input(&mut self, label: &str, width: u32) -> Result<ValueId, Violations> {
        self.value(label, Op::Input, &[], Type::f32(Rows::All, width))
    }

    /// [`Op::Route`] with so many experts a row.
    pub fn route(
        &mut self,
        label: &str,
        router: WeightRef,
        denominator: Denominator,
        chosen: u32,
        x: ValueId,
    ) -> Result<ValueId, Violations> {
        let op = Op::Route { router, denominator };
        let rows = self.operand(label, &op, x)?.rows;
        self.value(label, op, &[x], Type::f32(rows, chosen.saturating_mul(2)))
    }

    /// [`Op::ExpertLinear`] whose experts have results of `width` values.
    pub fn expert_linear(
        &mut self,
        label: &str,
        weight: WeightRef,
        width: u32,
        [x, routes]: [ValueId; 2],
    ) -> Result<ValueId, Violations> {
        let op = Op::ExpertLinear { weight };
        let routes_type = self.operand(label, &op, routes)?;
        let slots = routes_type.element.width() / 2;
        let ty = Type { slots, ..Type::f32(routes_type.rows, width) };
        self.value(label, op, &[x, routes], ty)
    }

    /// Any other operation that models are written with, and its result; the first one for [`Op::WriteKv`], which has none,
    /// is the key that it was given.
    pub fn node(&mut self, label: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, Violations> {
        let first = match inputs.first() {
            Some(&first) => Some(self.operand(label, &op, first)?),
            None => None,
        };
        match (self.result_type(&op, inputs, first), inputs.first()) {
            (Ok(Some(ty)), _) => self.value(label, op, inputs, ty),
            (Ok(None), Some(&key)) => self.push(label, op, inputs, None).map(|_| key),
            (Ok(None), None) => Err(refused(label, &op, "operands are missing")),
            (Err(rule), _) => Err(refused(label, &op, rule)),
        }
    }

    /// The graph that gives the output rows of `output`, held to all rules and limits.
    pub fn finish(mut self, output: ValueId) -> Result<Graph, Violations> {
        self.graph.output = output;
        self.graph.verify(Contract::default())?;
        self.graph.check_limits()?;
        Ok(self.graph)
    }

    /// What an operation makes of operands of which the first has this type; none for one without a result.
    fn result_type(
        &self,
        op: &Op,
        inputs: &[ValueId],
        first: Option<Type>,
    ) -> Result<Option<Type>, &'static str> {
        let of_table = |table: &WeightRef| match table.shape {
            Shape::Matrix { cols, .. } => Ok(Some(Type::f32(Rows::All, cols))),
            Shape::Vector(_) => Err("the table must be a matrix"),
        };
        let ty = match op {
            Op::Tokens => return Ok(Some(Type::new(Rows::All, Element::U32))),
            Op::Embed { table, .. } | Op::EmbedPositions { table } => return of_table(table),
            Op::WriteKv { .. } => return Ok(None),
            Op::Input | Op::Route { .. } | Op::ExpertLinear { .. } => {
                return Err("its width does not follow from its operands");
            }
            Op::PrepareQuery { .. } => return Err("only passes make this operation"),
            _ => first.ok_or("operands are missing")?,
        };
        let width = ty.element.width();
        Ok(Some(match op {
            Op::Linear { weight, .. } => match weight.shape {
                Shape::Matrix { rows, .. } => Type { element: Element::F32 { width: rows }, ..ty },
                Shape::Vector(_) => return Err("the weight must be a matrix"),
            },
            Op::Quantize => Type { element: Element::A16 { width }, ..ty },
            Op::SelectOutputs => Type { rows: Rows::Outputs, ..ty },
            Op::SumExperts => Type { slots: 1, ..ty },
            Op::AddShared { .. } => inputs.get(1).and_then(|&a| self.ty(a)).ok_or("operands are missing")?,
            _ => Type { element: Element::F32 { width }, ..ty },
        }))
    }

    fn operand(&self, label: &str, op: &Op, value: ValueId) -> Result<Type, Violations> {
        self.ty(value).ok_or_else(|| refused(label, op, format!("{value} must be a value of this graph")))
    }

    fn value(&mut self, label: &str, op: Op, inputs: &[ValueId], ty: Type) -> Result<ValueId, Violations> {
        let count = self.graph.values.len();
        self.push(label, op, inputs, Some(ty)).map(|()| ValueId(count as u32))
    }

    /// Adds a node, unless it breaks a rule.
    fn push(&mut self, label: &str, op: Op, inputs: &[ValueId], ty: Option<Type>) -> Result<(), Violations> {
        let results = ty.map(|ty| self.graph.new_value(ty)).into_iter().collect();
        self.graph.nodes.push(Node { label: label.to_owned(), op, inputs: inputs.to_vec(), results });
        let checked = self.graph.verify_last();
        if checked.is_err() {
            self.graph.nodes.pop();
            let kept = self.graph.values.len() - usize::from(ty.is_some());
            self.graph.values.truncate(kept);
        }
        checked
    }
}

fn refused(label: &str, op: &Op, rule: impl Into<String>) -> Violations {
    Violations(vec![Violation { place: format!("{} label={label}", op.name()), rule: rule.into() }])
}
