#!/usr/bin/env python3
"""Writes crates/driver-api/src/{table,handles,constants,status_codes}.rs from NVIDIA's headers.

Only facts are taken: names, types, order of arguments, versions, values, sizes. No text of the headers is copied.

Two packages of PyPI contain the headers, one for each ABI generation of the programs in use:

    pip download --no-deps -d /tmp/h nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-runtime==13.5.37
    for w in /tmp/h/*.whl; do unzip -q "$w" '*/include/*' -d "${w%.whl}"; done
    tools/driver-api/generate.py /tmp/h/nvidia_cuda_runtime_cu12-*/nvidia/cuda_runtime/include /tmp/h/nvidia_cuda_runtime-*/nvidia/cu13/include

Arguments: include folders, oldest first. With --check nothing is written, and the exit status is 0 if the files in the tree are what the
headers give. Needs python >= 3.11 and a C compiler (`cc`).
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CRATE = ROOT / "crates" / "driver-api" / "src"
HEADERS = ["cuda.h", "cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h", "cudaProfilerTypedefs.h"]

# Types with a layout in src/types.rs; every other struct is opaque behind a pointer.
LAID_OUT = [
    "CUuuid", "CUipcMemHandle", "CUipcEventHandle", "CUmemLocation", "CUlaunchConfig", "CUlaunchAttribute",
    "CUmemAllocationProp", "CUmemAccessDesc", "CUmemPoolProps", "CUDA_MEMCPY2D_v1", "CUDA_MEMCPY2D", "CUDA_MEMCPY3D",
    "CUDA_ARRAY_DESCRIPTOR_v1", "CUDA_ARRAY_DESCRIPTOR", "CUDA_ARRAY3D_DESCRIPTOR_v1", "CUDA_ARRAY3D_DESCRIPTOR",
    "CUDA_LAUNCH_PARAMS", "CUDA_MEM_ALLOC_NODE_PARAMS", "CUgraphNodeParams", "CUdevprop", "CUeglFrame",
]
# Function pointers that this workspace calls or passes to the driver; the others are plain addresses.
FUNCTIONS = {"CUhostFn", "CUstreamCallback"}
# Enums of which this workspace uses values. Only the values that its Rust sources name are written.
ENUMS = [
    "CUdriverProcAddress_flags", "CUdriverProcAddressQueryResult", "CUstream_flags", "CUevent_flags",
    "CUevent_record_flags", "CUstreamCaptureStatus", "CUstreamCaptureMode", "CUdevice_attribute", "CUmemorytype",
    "CUlaunchAttributeID", "CUpointer_attribute", "CUfunction_attribute", "CUstreamWaitValue_flags",
    "CUstreamWriteValue_flags", "CUcomputemode", "CUmemLocationType", "CUmemPool_attribute", "CUgraphMem_attribute",
    "CUgraphNodeType", "CUlimit",
]

BUILTIN = {
    "void": "c_void", "char": "c_char", "signed char": "c_schar", "unsigned char": "c_uchar", "short": "c_short",
    "unsigned short": "c_ushort", "int": "c_int", "unsigned int": "c_uint", "unsigned": "c_uint", "long long": "c_longlong",
    "unsigned long long": "c_ulonglong", "unsigned long": "c_ulong", "long": "c_long", "float": "f32", "double": "f64",
    "size_t": "usize", "uint32_t": "u32", "uint64_t": "u64", "cuuint32_t": "u32", "cuuint64_t": "u64", "uint8_t": "u8",
}
KEYWORDS = {"type", "fn", "ref", "match", "in", "self", "move", "where", "use", "mod", "loop", "box", "final"}


def used_names():
    """The words of the workspace's Rust sources, without the generated constants."""
    paths = run(["git", "-C", str(ROOT), "ls-files", "*.rs"]).splitlines()
    texts = [(ROOT / path).read_text() for path in paths if ROOT / path != CRATE / "constants.rs" and (ROOT / path).exists()]
    return set(re.findall(r"\w+", " ".join(texts)))


def run(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


class Header:
    """The declarations of one include folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        source = "".join(f"#include <{name}>\n" for name in HEADERS)
        self.flags = ["-D__CUDA_API_VERSION_INTERNAL", f"-I{self.folder}", f"-I{HERE / 'stubs'}"]
        self.prologue = source
        text = run(["cc", "-E", "-P", "-xc", *self.flags, "-"], input=source)
        text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", text)
        self.text = text
        self.functions = self._functions(r"\b([A-Za-z_][\w\s*]*?)\b(cu[A-Z]\w*)\s*\(([^()]*)\)\s*;")
        self.pointers = self._functions(r"typedef\s+(\w[\w\s*]*?)\(\s*\*\s*PFN_(\w+)\)\s*\(([^()]*)\)\s*;")
        self.typedefs = self._typedefs()
        self.version = int(run(["cc", "-E", "-P", "-xc", *self.flags, "-"], input=source + "VERSION_IS CUDA_VERSION\n").split()[-1])

    def _functions(self, pattern):
        found = {}
        for result, name, arguments in re.findall(pattern, self.text):
            if result.split() != ["CUresult"]:
                sys.exit(f"{self.folder}: {name} returns {result.strip()}: the table knows CUresult only")
            found[name] = [a.strip() for a in " ".join(arguments.split()).split(",")] if arguments.strip() not in ("", "void") else []
        return found

    def _typedefs(self):
        found = {}
        # Flatten bodies innermost first, so that nested structs and unions leave one closing name.
        text = self.text
        while True:
            flat = re.sub(r"\{[^{}]*\}", "@", text)
            if flat == text:
                break
            text = flat
        for body in re.findall(r"\btypedef\s+([^;]+);", text):
            body = " ".join(body.split())
            if match := re.match(r"(.+?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", body):
                found[match[2]] = ("function", match[0])
            elif match := re.match(r"(struct|union|enum)(?: \w+)? @ ?(\w+)$", body):
                found[match[2]] = (match[1], None)
            elif match := re.match(r"(struct|union) (\w+) ?\* ?(\w+)$", body):
                found[match[3]] = ("handle", match[2])
            elif match := re.match(r"(struct|union|enum) (\w+) (\w+)$", body):
                found[match[3]] = (match[1], None)
            elif match := re.match(r"((?:const )?[\w ]+?[ *]+)(\w+)$", body):
                found[match[2]] = ("alias", match[1].strip())
        return found


class Types:
    """Translates C types to Rust types, and records which types must be declared."""

    def __init__(self, headers):
        self.typedefs = {}
        for header in headers:
            self.typedefs.update(header.typedefs)
        self.handles, self.enums, self.opaque, self.aliases, self.functions = {}, set(), set(), {}, set()
        self.by_value = set()

    def canonical(self, name):
        """The canonical name of a type: CUdevice_v1 and CUdevice are CUdevice, but CUdeviceptr_v1 is not CUdeviceptr."""
        last = self.last(name)
        plain = re.sub(r"_v\d+$", "", last)
        return plain if plain != last and plain in self.typedefs and self.last(plain) == last else last

    def last(self, name):
        """The last named type in a chain of aliases."""
        while name in self.typedefs and self.typedefs[name][0] == "alias":
            target = self.typedefs[name][1]
            if "*" in target or target in BUILTIN or target not in self.typedefs:
                return name
            name = target
        return name

    def rust(self, text, by_value=True):
        match = re.match(r"^((?:const |struct |enum |unsigned |signed |long )*)([\w]+)((?:[\s*]|const\b)*)$", " ".join(text.split()))
        if not match:
            sys.exit(f"cannot read the type {text!r}")
        prefix, name, tail = match[1].split(), match[2], match[3]
        constant = "const" in prefix
        words = [w for w in prefix if w in ("unsigned", "signed", "long")]
        if words:
            name = " ".join([*words, name])
        stars = re.findall(r"\*|const", tail)
        if stars and stars[0] == "const":
            constant, stars = True, stars[1:]
        base = self.base(name, by_value and "*" not in stars)
        for index, star in enumerate(stars):
            if star == "const":
                continue
            base = f"*const {base}" if constant else f"*mut {base}"
            constant = index + 1 < len(stars) and stars[index + 1] == "const"
        return base

    def base(self, name, by_value):
        if name in BUILTIN:
            return BUILTIN[name]
        name = self.canonical(name)
        if name == "CUresult":
            return name
        kind, detail = self.typedefs[self.last(name)]
        if kind == "alias":
            self.aliases[name] = self.rust(detail, by_value)
        elif kind == "handle":
            self.handles[name] = detail
        elif kind == "enum":
            self.enums.add(name)
        elif kind == "function":
            if name not in FUNCTIONS:
                self.functions.add(name)
        else:
            if by_value:
                self.by_value.add(name)
            if name not in LAID_OUT:
                self.opaque.add(name)
        return name


def split(symbol):
    """cuMemcpyDtoH_v2_ptds -> (cuMemcpyDtoH, 2, ptsz): both suffixes mean the per-thread default stream."""
    match = re.match(r"(\w+?)(?:_v(\d+))?(_ptsz|_ptds)?$", symbol)
    return match[1], int(match[2] or 1), "ptsz" if match[3] else "default"


def snake(name):
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return name + "_" if name in KEYWORDS else name


def arguments(types, declared):
    out, used = [], set()
    for index, text in enumerate(declared):
        text = re.sub(r"\s*\[\w*\]\s*$", "@", text)
        array = text.endswith("@")
        text = text.rstrip("@").strip()
        match = re.match(r"^(.*?[\s*])(\w+)$", text)
        named = match and match[1].strip() and match[1].strip() not in ("const", "struct") and match[2] not in BUILTIN
        kind, name = (match[1], match[2]) if named else (text, f"arg{index}")
        name = snake(name)
        while name in used:
            name += "_"
        used.add(name)
        out.append((name, types.rust(kind + ("*" if array else ""))))
    return out


def rows(headers, types):
    functions, pointers = {}, {}
    for header in headers:
        functions.update(header.functions)
        pointers.update(header.pointers)
    for header in headers:
        for symbol, declared in header.functions.items():
            if [t for _, t in arguments(types, declared)] != [t for _, t in arguments(types, functions[symbol])]:
                sys.exit(f"{symbol} has another signature in {header.folder}: one symbol is one ABI, so a type was misread")
    symbols, versions = collections.defaultdict(list), collections.defaultdict(list)
    for symbol in functions:
        base, abi, variant = split(symbol)
        symbols[base, variant].append((abi, symbol))
    for pointer in pointers:
        base, since, variant = split(pointer)
        versions[base, variant].append((since, pointer))
    if symbols.keys() != versions.keys():
        sys.exit(f"functions and PFN_ typedefs differ: {sorted(symbols.keys() ^ versions.keys())}")
    table = []
    for key in sorted(symbols):
        if len(symbols[key]) != len(versions[key]):
            sys.exit(f"{key}: symbols {sorted(symbols[key])}, versions {sorted(versions[key])}")
        for (_, symbol), (since, pointer) in zip(sorted(symbols[key]), sorted(versions[key])):
            signature = arguments(types, functions[symbol])
            other = arguments(types, pointers[pointer])
            if [t for _, t in signature] != [t for _, t in other]:
                sys.exit(f"{symbol} and PFN_{pointer} disagree: {signature} / {other}")
            table.append((symbol, key[0], since, key[1], signature))
    return table


def probe(header, types, enums):
    """Sizes, alignments and enum values from the C compiler."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", header.prologue, "int main(void) {"]
    for name in LAID_OUT:
        if name in header.typedefs:
            lines.append(f'printf("size {name} %zu %zu\\n", sizeof({name}), _Alignof({name}));')
    for enum in enums:
        for item in enumerators(header, enum):
            lines.append(f'printf("value {enum} {item} %lld\\n", (long long){item});')
    for enum in sorted(types.enums):
        if enum in header.typedefs:
            lines.append(f'printf("signed {enum} %d %zu\\n", ({enum})-1 < 0, sizeof({enum}));')
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "probe"
        run(["cc", "-w", "-xc", *header.flags, "-o", str(program), "-"], input="\n".join(lines))
        return [line.split() for line in run([str(program)]).splitlines()]


def enumerators(header, enum):
    match = re.search(r"typedef\s+enum\s*\w*\s*\{([^{}]*)\}\s*" + enum + r"\s*;", header.text)
    if not match and (alias := header.typedefs.get(enum)) and alias[0] == "alias":
        return enumerators(header, alias[1])
    return re.findall(r"(?:^|,)\s*(\w+)\s*(?==|,|$)", match[1]) if match else []


HEAD = "// Generated by tools/driver-api/generate.py from the CUDA headers {versions}. Do not edit: change the generator.\n"


def emit(headers):
    types = Types(headers)
    for name in LAID_OUT:
        types.base(name, False)
    table = rows(headers, types)
    if missing := types.by_value - set(LAID_OUT):
        sys.exit(f"passed by value, but src/types.rs has no layout for: {sorted(missing)}")
    policies = tomllib.loads((HERE / "policies.toml").read_text())
    word = {}
    known = {base for _, base, *_ in table}
    for policy, names in policies.items():
        for name in names:
            if name in word or name not in known:
                sys.exit(f"policies.toml: {name} is listed twice or is not in the headers")
            word[name] = policy
    # A layout in src/types.rs may name an enum that no signature names.
    for enum in ENUMS:
        if enum in types.typedefs:
            types.base(enum, False)

    facts = [fact for header in headers for fact in probe(header, types, [*ENUMS, "CUresult"])]
    sizes, values, signed = {}, collections.defaultdict(dict), set()
    for fact in facts:
        if fact[0] == "size":
            if sizes.setdefault(fact[1], fact[2:]) != fact[2:]:
                sys.exit(f"{fact[1]} has different layouts in the headers: {sizes[fact[1]]}, {fact[2:]}")
        elif fact[0] == "value":
            values[fact[1]].setdefault(fact[2], int(fact[3]))
        elif fact[0] == "signed":
            if fact[3] != "4":
                sys.exit(f"enum {fact[1]} is {fact[3]} bytes")
            if fact[2] == "1":
                signed.add(fact[1])

    head = HEAD.format(versions=", ".join(f"{h.version // 1000}.{h.version % 1000 // 10}" for h in headers))
    files = {}

    out = [head, "//! The table of CUDA driver functions: one row for each exported symbol, ordered by name, variant and version.\n\n"]
    out.append("/// Passes all rows of the table to a macro: `driver_api!(callback)` or `driver_api!(path::to::callback)`.\n///\n")
    out.append("/// The macro receives all rows in one call, each of this form:\n/// ```text\n/// policy symbol (\"name\", since, variant) fn(argument: type, ...);\n/// ```\n")
    out.append("/// All functions return `CUresult`. The types must be in scope: `use sluice_driver_api::types::*;`.\n")
    out.append("#[macro_export]\nmacro_rules! driver_api {\n    ($($callback:tt)+) => { $($callback)+! {\n")
    for symbol, base, since, variant, signature in table:
        args = ", ".join(f"{name}: {kind}" for name, kind in signature)
        out.append(f"{word.get(base, 'forward'):<7} {symbol} (\"{base}\", {since}, {variant}) fn({args});\n")
    out.append("    } };\n}\n")
    files["table.rs"] = "".join(out)

    out = [head, "//! Handles, enums and opaque types of the table's signatures.\n\nuse std::ffi::{c_int, c_uint, c_ulonglong, c_void};\n\n"]
    out.append("macro_rules! opaque {\n    ($($name:ident)*) => { $(\n        #[doc = concat!(\"`\", stringify!($name), \"`, used only behind a pointer.\")]\n")
    out.append("        #[repr(C)]\n        #[derive(Debug)]\n        pub struct $name {\n            _opaque: [u8; 0],\n        }\n    )* };\n}\n\n")
    out.append("macro_rules! named {\n    ($($name:ident = $target:ty;)*) => { $(\n        #[doc = concat!(\"The driver's `\", stringify!($name), \"`.\")]\n        pub type $name = $target;\n    )* };\n}\n\n")
    tags = sorted(set(types.handles.values()) | types.opaque)
    out.append("opaque! {\n" + "".join(f"    {name}\n" for name in tags) + "}\n\n")
    out.append("named! {\n")
    named = {name: f"*mut {tag}" for name, tag in types.handles.items()}
    named |= {name: "c_int" if name in signed else "c_uint" for name in types.enums}
    named |= types.aliases
    named |= {name: "*mut c_void" for name in types.functions}
    out.extend(f"    {name} = {target};\n" for name, target in sorted(named.items()))
    out.append("}\n")
    files["handles.rs"] = "".join(out)

    out = [head, "//! The enum values that this workspace uses, and the sizes that the tests of `types.rs` compare.\n\nuse super::handles::*;\n\n"]
    out.append("macro_rules! values {\n    ($($kind:ident { $($name:ident = $value:literal)* })*) => { $($(\n        #[doc = concat!(\"`\", stringify!($name), \"` of `\", stringify!($kind), \"`.\")]\n        pub const $name: $kind = $value;\n    )*)* };\n}\n\n")
    out.append("values! {\n")
    used = used_names()
    for enum in ENUMS:
        kind = types.canonical(enum)
        if not used & values[enum].keys():
            sys.exit(f"enum {enum} has no value that is used: remove it from ENUMS")
        out.append(f"    {kind} {{\n")
        out.extend(f"        {name} = {value}\n" for name, value in values[enum].items() if name in used)
        out.append("    }\n")
    out.append("}\n\n/// Size and alignment in bytes of each type in `types.rs`, from the C compiler.\n#[cfg(test)]\n")
    out.append("pub(crate) const LAYOUTS: &[(&str, usize, usize)] = &[\n")
    out.extend(f"    (\"{name}\", {size}, {align}),\n" for name, (size, align) in sorted(sizes.items()))
    out.append("];\n")
    files["constants.rs"] = "".join(out)

    out = [head, "//! Status codes of the driver.\n\n"]
    out.append("macro_rules! status_codes {\n    ($callback:ident) => { $callback! {\n")
    seen = set()
    for name, value in sorted(values["CUresult"].items(), key=lambda item: item[1]):
        if value not in seen:
            out.append(f"        {name.removeprefix('CUDA_')} {name} {value};\n")
        seen.add(value)
    out.append("    } };\n}\npub(crate) use status_codes;\n")
    files["status_codes.rs"] = "".join(out)
    return files, table, types


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the tree's files differ")
    parser.add_argument("include", nargs="+", help="include folders, oldest ABI first")
    options = parser.parse_args()
    files, table, types = emit([Header(folder) for folder in options.include])
    stale = [name for name, text in files.items() if not (CRATE / name).exists() or (CRATE / name).read_text() != text]
    if options.check:
        for name in stale:
            print(f"{CRATE / name} is not what the headers give: run generate.py", file=sys.stderr)
        sys.exit(1 if stale else 0)
    for name in stale:
        (CRATE / name).write_text(files[name])
    print(f"{len(table)} symbols; by value: {', '.join(sorted(types.by_value))}; written: {', '.join(stale) or 'nothing, all current'}")


if __name__ == "__main__":
    main()
