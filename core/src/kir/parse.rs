//! Reads the text form ([`super::print`]). `parse(print(kernel)) == kernel` for every kernel that verifies.

use std::collections::HashMap;

use super::kernel::{
    Attr, Block, Carried, Inst, Kernel, Object, ObjectId, Param, ParamId, Space, Stmt, Value,
};
use super::op::{AttrKind, Op, Pattern};
use super::types::{Scalar, Type};
use super::verify::MAX_DEPTH;

/// Where a text is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// What was expected and what was found.
    pub problem: String,
}

/// Reads one kernel. Values get the types that the operations give them; a value that is used before its line
/// is refused. Whether the kernel is right beyond that is the verifier's business.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let lines = text.lines().enumerate().map(|(number, line)| Line {
        number: number + 1,
        words: words(line.split(';').next().unwrap_or("")),
    });
    let lines: Vec<Line<'_>> = lines.filter(|line| !line.words.is_empty()).collect();
    let mut parser = Parser { lines, at: 0, values: HashMap::new(), depth: 0, kernel: empty() };
    parser.header()?;
    parser.declarations()?;
    parser.kernel.body = parser.block()?;
    let end = parser.next("`}`")?;
    end.expect(0, "}")?;
    match parser.lines.get(parser.at) {
        Some(line) => Err(line.error("there is more after the kernel")),
        None => Ok(parser.kernel),
    }
}

fn empty() -> Kernel {
    Kernel {
        name: String::new(),
        workgroup: 0,
        resident: None,
        params: vec![],
        objects: vec![],
        types: vec![],
        body: Block::default(),
    }
}

#[derive(Clone)]
struct Line<'a> {
    number: usize,
    words: Vec<&'a str>,
}

/// Words are runs of letters, digits and `_ . % - +`; every other sign is a word of its own.
fn words(line: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || "_.%-+".contains(c);
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let len =
            if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        words.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    words
}

impl<'a> Line<'a> {
    fn error(&self, problem: impl Into<String>) -> ParseError {
        ParseError { line: self.number, problem: problem.into() }
    }

    fn word(&self, at: usize) -> Result<&'a str, ParseError> {
        self.words.get(at).copied().ok_or_else(|| self.error("the line ends too early"))
    }

    fn expect(&self, at: usize, word: &str) -> Result<(), ParseError> {
        match self.words.get(at) {
            Some(&found) if found == word => Ok(()),
            Some(found) => Err(self.error(format!("`{word}` was expected, `{found}` found"))),
            None => Err(self.error(format!("`{word}` was expected, and the line ends"))),
        }
    }

    fn number(&self, at: usize) -> Result<u32, ParseError> {
        let word = self.word(at)?;
        word.parse().map_err(|_| self.error(format!("a number was expected, `{word}` found")))
    }

    fn end(&self, at: usize) -> Result<(), ParseError> {
        match self.words.get(at) {
            Some(word) => Err(self.error(format!("the line should end before `{word}`"))),
            None => Ok(()),
        }
    }
}

struct Parser<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
    values: HashMap<&'a str, Value>,
    /// Blocks around the line.
    depth: usize,
    kernel: Kernel,
}

impl<'a> Parser<'a> {
    fn next(&mut self, what: &str) -> Result<Line<'a>, ParseError> {
        let line = self.lines.get(self.at).cloned().ok_or_else(|| ParseError {
            line: self.lines.last().map_or(1, |line| line.number),
            problem: format!("the text ends where {what} was expected"),
        })?;
        self.at += 1;
        Ok(line)
    }

    fn header(&mut self) -> Result<(), ParseError> {
        let line = self.next("`kernel NAME workgroup SIZE {`")?;
        line.expect(0, "kernel")?;
        self.kernel.name = line.word(1)?.to_owned();
        line.expect(2, "workgroup")?;
        self.kernel.workgroup = line.number(3)?;
        let mut at = 4;
        if line.word(at)? == "resident" {
            self.kernel.resident = Some(line.number(at + 1)?);
            at += 2;
        }
        line.expect(at, "{")?;
        line.end(at + 1)
    }

    fn declarations(&mut self) -> Result<(), ParseError> {
        while let Some(line) = self.lines.get(self.at).cloned() {
            let space = match line.words[0] {
                "param" => None,
                "read" => Some(Space::Read),
                "write" => Some(Space::Write),
                "readwrite" => Some(Space::ReadWrite),
                "shared" => Some(Space::Shared { len: line.number(5)? }),
                _ => break,
            };
            self.at += 1;
            let name = line.word(1)?.to_owned();
            line.expect(2, ":")?;
            let ty = line.word(3)?;
            let scalar = Scalar::ALL.into_iter().find(|scalar| scalar.name() == ty);
            let scalar = scalar.ok_or_else(|| line.error(format!("there is no type `{ty}`")))?;
            match space {
                None => self.kernel.params.push(Param { name, scalar }),
                Some(space) => self.kernel.objects.push(Object { name, elem: scalar, space }),
            }
            if let Some(Space::Shared { .. }) = space {
                line.expect(4, "[")?;
                line.expect(6, "]")?;
                line.end(7)?;
            } else {
                line.end(4)?;
            }
        }
        Ok(())
    }

    /// Statements up to the line that closes the block, which stays.
    fn block(&mut self) -> Result<Block, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH + 1 {
            let line = self.lines.get(self.at.saturating_sub(1)).map_or(1, |line| line.number);
            return Err(ParseError { line, problem: format!("blocks are more than {MAX_DEPTH} deep") });
        }
        let block = self.statements()?;
        self.depth -= 1;
        Ok(block)
    }

    fn statements(&mut self) -> Result<Block, ParseError> {
        let mut block = Block::default();
        loop {
            let line = self.next("a statement or `}`")?;
            match line.words[0] {
                "}" => {
                    self.at -= 1;
                    return Ok(block);
                }
                "yield" => {
                    let (values, at) = self.list(&line, 1)?;
                    line.end(at)?;
                    block.yields = values;
                    let close = self.next("`}`")?;
                    close.expect(0, "}")?;
                    self.at -= 1;
                    return Ok(block);
                }
                _ => block.stmts.push(self.stmt(&line)?),
            }
        }
    }

    fn stmt(&mut self, line: &Line<'a>) -> Result<Stmt, ParseError> {
        let mut names = Vec::new();
        let mut at = 0;
        while line.words.get(at).is_some_and(|word| word.starts_with('%')) {
            names.push(line.words[at]);
            at += 1;
            match line.word(at)? {
                "," => at += 1,
                "=" => {
                    at += 1;
                    break;
                }
                other => return Err(line.error(format!("`,` or `=` was expected, `{other}` found"))),
            }
        }
        match line.word(at)? {
            "if" => self.if_stmt(line, at + 1, &names),
            "loop" => self.loop_stmt(line, at + 1, &names),
            _ => self.inst(line, at, &names).map(Stmt::Inst),
        }
    }

    fn if_stmt(&mut self, line: &Line<'a>, at: usize, names: &[&'a str]) -> Result<Stmt, ParseError> {
        let condition = self.value(line, at)?;
        line.expect(at + 1, "{")?;
        line.end(at + 2)?;
        let then = self.block()?;
        let close = self.next("`}`")?;
        let otherwise = if close.words.len() > 1 {
            close.expect(1, "else")?;
            close.expect(2, "{")?;
            close.end(3)?;
            let otherwise = self.block()?;
            self.next("`}`")?.end(1)?;
            otherwise
        } else {
            Block::default()
        };
        let types = then.yields.iter().map(|&value| self.ty(value)).collect();
        let results = self.define(line, names, types)?;
        Ok(Stmt::If { condition, then, otherwise, results })
    }

    fn loop_stmt(&mut self, line: &Line<'a>, mut at: usize, names: &[&'a str]) -> Result<Stmt, ParseError> {
        let index_name = line.word(at)?;
        line.expect(at + 1, "=")?;
        let start = self.value(line, at + 2)?;
        line.expect(at + 3, "to")?;
        let end = self.value(line, at + 4)?;
        line.expect(at + 5, "step")?;
        let step = line.number(at + 6)?;
        at += 7;
        let (mut inside, mut first) = (Vec::new(), Vec::new());
        if line.word(at)? == "carry" {
            loop {
                inside.push(line.word(at + 1)?);
                line.expect(at + 2, "=")?;
                first.push(self.value(line, at + 3)?);
                at += 4;
                if line.word(at)? != "," {
                    break;
                }
            }
        }
        line.expect(at, "{")?;
        line.end(at + 1)?;
        let index = self.define(line, &[index_name], vec![Scalar::U32.into()])?[0];
        let types: Vec<Type> = first.iter().map(|&value| self.ty(value)).collect();
        let inside = self.define(line, &inside, types.clone())?;
        let body = self.block()?;
        self.next("`}`")?.end(1)?;
        let results = self.define(line, names, types)?;
        let carried = inside.into_iter().zip(first).zip(results);
        let carried = carried.map(|((inside, first), result)| Carried { inside, first, result }).collect();
        Ok(Stmt::Loop { index, start, end, step, carried, body })
    }

    fn inst(&mut self, line: &Line<'a>, at: usize, names: &[&'a str]) -> Result<Inst, ParseError> {
        let word = line.word(at)?;
        let (mnemonic, stated) = match word.split_once('.') {
            Some((mnemonic, ty)) => (mnemonic, Some(ty)),
            None => (word, None),
        };
        let op = Op::from_mnemonic(mnemonic);
        let op = op.ok_or_else(|| line.error(format!("there is no operation `{mnemonic}`")))?;
        let stated =
            stated.map(|ty| ty.parse::<Type>().map_err(|()| line.error(format!("there is no type `{ty}`"))));
        let stated = stated.transpose()?;
        if stated.is_some() != (op.row().result == Some(Pattern::Stated)) {
            let is = if stated.is_some() { "is no" } else { "has to be a" };
            return Err(line.error(format!("there {is} type after `{mnemonic}`")));
        }
        let (operands, attr, at) = self.operands(line, at + 1, op, stated)?;
        line.end(at)?;
        let types: Vec<Type> = operands.iter().map(|&value| self.ty(value)).collect();
        let result = op.row().check(&types, stated).map_err(|problem| line.error(problem))?;
        let result = self.define(line, names, result.into_iter().collect())?.first().copied();
        Ok(Inst { op, attr, operands, result })
    }

    fn operands(
        &mut self,
        line: &Line<'a>,
        at: usize,
        op: Op,
        stated: Option<Type>,
    ) -> Result<(Vec<Value>, Attr, usize), ParseError> {
        match op.row().attr {
            AttrKind::None if line.words.len() == at => Ok((vec![], Attr::None, at)),
            AttrKind::None => {
                let (operands, at) = self.list(line, at)?;
                Ok((operands, Attr::None, at))
            }
            AttrKind::Word => {
                let word = word(line.word(at)?, stated.map(|ty| ty.scalar));
                let word =
                    word.ok_or_else(|| line.error(format!("`{}` is no such constant", line.words[at])))?;
                Ok((vec![], Attr::Word(word), at + 1))
            }
            AttrKind::Param => {
                let name = line.word(at)?;
                let id = self.kernel.params.iter().position(|param| param.name == name);
                let id = id.ok_or_else(|| line.error(format!("there is no parameter `{name}`")))?;
                Ok((vec![], Attr::Param(ParamId(id as u32)), at + 1))
            }
            AttrKind::Object => {
                let (id, index, mut at) = self.element(line, at)?;
                let mut operands = vec![index];
                if op == Op::Store {
                    line.expect(at, ",")?;
                    operands.push(self.value(line, at + 1)?);
                    at += 2;
                }
                Ok((operands, Attr::Object(id), at))
            }
            AttrKind::Copy => {
                let (to, to_index, at) = self.element(line, at)?;
                line.expect(at, ",")?;
                let (from, from_index, at) = self.element(line, at + 1)?;
                Ok((vec![to_index, from_index], Attr::Copy { to, from }, at))
            }
            AttrKind::Columns => {
                let (of, index, at) = self.element(line, at)?;
                line.expect(at, "stride")?;
                let stride = line.number(at + 1)?;
                Ok((vec![index], Attr::Columns { of, stride }, at + 2))
            }
            AttrKind::Index if op.row().operands.is_empty() => {
                Ok((vec![], Attr::Index(line.number(at)?), at + 1))
            }
            AttrKind::Index => {
                let (operands, at) = self.list(line, at)?;
                line.expect(at, "[")?;
                let index = line.number(at + 1)?;
                line.expect(at + 2, "]")?;
                Ok((operands, Attr::Index(index), at + 3))
            }
            AttrKind::Selector => {
                let (operands, at) = self.list(line, at)?;
                line.expect(at, "bytes")?;
                let selector = u16::from_str_radix(line.word(at + 1)?, 16);
                let selector = selector.map_err(|_| line.error("four hexadecimal digits were expected"))?;
                Ok((operands, Attr::Selector(selector), at + 2))
            }
            AttrKind::Cluster => {
                let (operands, at) = self.list(line, at)?;
                line.expect(at, "of")?;
                let width = line.number(at + 1)?;
                line.expect(at + 2, "at")?;
                let lane = line.number(at + 3)?;
                Ok((operands, Attr::Cluster { width, lane }, at + 4))
            }
        }
    }

    /// `name[index]`, and where it ends.
    fn element(&self, line: &Line<'a>, at: usize) -> Result<(ObjectId, Value, usize), ParseError> {
        let name = line.word(at)?;
        let id = self.kernel.objects.iter().position(|object| object.name == name);
        let id = id.ok_or_else(|| line.error(format!("there is no object `{name}`")))?;
        line.expect(at + 1, "[")?;
        let index = self.value(line, at + 2)?;
        line.expect(at + 3, "]")?;
        Ok((ObjectId(id as u32), index, at + 4))
    }

    /// Values separated by commas, and where they end.
    fn list(&self, line: &Line<'a>, mut at: usize) -> Result<(Vec<Value>, usize), ParseError> {
        let mut values = Vec::new();
        loop {
            values.push(self.value(line, at)?);
            at += 1;
            match line.words.get(at) {
                Some(&",") => at += 1,
                _ => return Ok((values, at)),
            }
        }
    }

    fn value(&self, line: &Line<'a>, at: usize) -> Result<Value, ParseError> {
        let name = line.word(at)?;
        let known = self.values.get(name).copied();
        known.ok_or_else(|| line.error(format!("there is no value `{name}` yet")))
    }

    fn ty(&self, value: Value) -> Type {
        self.kernel.types[value.index()]
    }

    fn define(
        &mut self,
        line: &Line<'a>,
        names: &[&'a str],
        types: Vec<Type>,
    ) -> Result<Vec<Value>, ParseError> {
        if names.len() != types.len() {
            let (expected, found) = (types.len(), names.len());
            return Err(line.error(format!("{expected} results were expected, {found} found")));
        }
        let mut values = Vec::new();
        for (&name, ty) in names.iter().zip(types) {
            let value = Value(self.kernel.types.len() as u32);
            if !name.starts_with('%') || self.values.insert(name, value).is_some() {
                return Err(line.error(format!("`{name}` is no new value")));
            }
            self.kernel.types.push(ty);
            values.push(value);
        }
        Ok(values)
    }
}

/// The word of a constant of a type.
fn word(text: &str, scalar: Option<Scalar>) -> Option<u32> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u32::from_str_radix(digits, 16).ok();
    }
    match scalar? {
        Scalar::Bool => text.parse::<bool>().ok().map(u32::from),
        Scalar::U32 => text.parse().ok(),
        Scalar::I32 => text.parse::<i32>().ok().map(|i| i as u32),
        Scalar::F32 => text.parse::<f32>().ok().filter(|x| x.is_finite()).map(f32::to_bits),
        Scalar::I8x4 | Scalar::U8x4 => None,
    }
}
