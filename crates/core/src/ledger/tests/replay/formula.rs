//! The rules of `tests/bounds/rules.smt2`, read and evaluated: SMT-LIB functions of integers and truth values (0 and 1).

use std::collections::BTreeMap;

const RULES: &str = include_str!("../../../../../../tests/bounds/rules.smt2");

/// An S-expression.
#[derive(Clone, Debug)]
enum Expression {
    Atom(&'static str),
    List(Vec<Expression>),
}

impl Expression {
    fn atom(&self) -> &'static str {
        match self {
            Self::Atom(atom) => atom,
            Self::List(_) => panic!("a name, not {self:?}"),
        }
    }

    fn list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            Self::Atom(_) => panic!("a list, not {self:?}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Equal,
    Less,
    AtMost,
    And,
    Or,
    Not,
    Implies,
    IfThenElse,
}

#[derive(Clone, Debug)]
enum Term {
    Number(i128),
    /// The argument with this index.
    Argument(usize),
    Apply(Operator, Vec<Term>),
}

impl Term {
    fn value(&self, arguments: &[i128]) -> i128 {
        let (operator, terms) = match self {
            Self::Number(number) => return *number,
            Self::Argument(index) => return arguments[*index],
            Self::Apply(operator, terms) => (*operator, terms),
        };
        let value = |index: usize| terms[index].value(arguments);
        let holds = |term: &Self| term.value(arguments) != 0;
        match operator {
            Operator::Add => terms.iter().map(|term| term.value(arguments)).sum(),
            Operator::Subtract => terms[1..].iter().fold(value(0), |left, term| left - term.value(arguments)),
            Operator::Multiply => terms.iter().map(|term| term.value(arguments)).product(),
            Operator::Equal => i128::from(value(0) == value(1)),
            Operator::Less => i128::from(value(0) < value(1)),
            Operator::AtMost => i128::from(value(0) <= value(1)),
            Operator::And => i128::from(terms.iter().all(holds)),
            Operator::Or => i128::from(terms.iter().any(holds)),
            Operator::Not => i128::from(!holds(&terms[0])),
            Operator::Implies => i128::from(!holds(&terms[0]) || holds(&terms[1])),
            Operator::IfThenElse => value(if holds(&terms[0]) { 1 } else { 2 }),
        }
    }

    /// The same with these terms in place of the arguments.
    fn with(&self, arguments: &[Self]) -> Self {
        match self {
            Self::Number(_) => self.clone(),
            Self::Argument(index) => arguments[*index].clone(),
            Self::Apply(operator, terms) => {
                Self::Apply(*operator, terms.iter().map(|term| term.with(arguments)).collect())
            }
        }
    }
}

/// A function of the file.
struct Function {
    name: &'static str,
    arguments: Vec<&'static str>,
    body: Term,
}

/// One rule: its name, and its formula over the fields of a record.
pub(super) struct Rule {
    pub(super) name: &'static str,
    formula: Term,
}

impl Rule {
    pub(super) fn holds(&self, values: &[i128]) -> bool {
        self.formula.value(values) != 0
    }
}

/// The rules whose names begin with `scope`, over records with these `fields`.
pub(super) fn rules(scope: &str, fields: &[&str]) -> Vec<Rule> {
    let of_scope = functions().into_iter().filter(|function| function.name.starts_with(scope));
    let bound = of_scope.map(|function| {
        let field = |argument: &&str| {
            let index = fields.iter().position(|field| field == argument);
            Term::Argument(index.unwrap_or_else(|| panic!("{}: no field {argument}", function.name)))
        };
        let arguments: Vec<Term> = function.arguments.iter().map(field).collect();
        Rule { name: function.name, formula: function.body.with(&arguments) }
    });
    bound.collect()
}

/// The names of all rules, without the functions that they use.
pub(super) fn names() -> Vec<&'static str> {
    functions().iter().map(|function| function.name).filter(|name| name.contains('-')).collect()
}

fn functions() -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for definition in parse() {
        let [keyword, name, arguments, _, body] = definition.list() else { panic!("{definition:?}") };
        assert_eq!(keyword.atom(), "define-fun");
        let arguments: Vec<&str> = arguments.list().iter().map(|pair| pair.list()[0].atom()).collect();
        let body = term(body, &arguments, &functions);
        functions.push(Function { name: name.atom(), arguments, body });
    }
    functions
}

fn term(expression: &Expression, arguments: &[&str], functions: &[Function]) -> Term {
    let list = match expression {
        Expression::Atom(atom) => {
            let argument = arguments.iter().position(|argument| argument == atom).map(Term::Argument);
            let number = || match *atom {
                "true" => Term::Number(1),
                "false" => Term::Number(0),
                _ => Term::Number(atom.parse().unwrap_or_else(|_| panic!("{atom} is no argument"))),
            };
            return argument.unwrap_or_else(number);
        }
        Expression::List(list) => list,
    };
    let name = list[0].atom();
    let terms: Vec<Term> = list[1..].iter().map(|each| term(each, arguments, functions)).collect();
    if let Some(function) = functions.iter().find(|function| function.name == name) {
        assert_eq!(terms.len(), function.arguments.len(), "{name}");
        return function.body.with(&terms);
    }
    let operators = BTreeMap::from([
        ("+", Operator::Add),
        ("-", Operator::Subtract),
        ("*", Operator::Multiply),
        ("=", Operator::Equal),
        ("<", Operator::Less),
        ("<=", Operator::AtMost),
        ("and", Operator::And),
        ("or", Operator::Or),
        ("not", Operator::Not),
        ("=>", Operator::Implies),
        ("ite", Operator::IfThenElse),
    ]);
    Term::Apply(*operators.get(name).unwrap_or_else(|| panic!("unknown function {name}")), terms)
}

fn parse() -> Vec<Expression> {
    let mut open: Vec<Vec<Expression>> = vec![Vec::new()];
    for line in RULES.lines() {
        let code = line.split(';').next().unwrap_or("");
        let mut rest = code.trim_start();
        while !rest.is_empty() {
            let end = match rest.as_bytes()[0] {
                b'(' | b')' => 1,
                _ => rest.find(['(', ')', ' ']).unwrap_or(rest.len()),
            };
            let (token, after) = rest.split_at(end);
            rest = after.trim_start();
            match token {
                "(" => open.push(Vec::new()),
                ")" => {
                    let list = open.pop().expect("a parenthesis to close");
                    open.last_mut().expect("a parenthesis to close").push(Expression::List(list));
                }
                atom => open.last_mut().expect("the file").push(Expression::Atom(atom)),
            }
        }
    }
    assert_eq!(open.len(), 1, "a parenthesis is open");
    open.remove(0)
}
