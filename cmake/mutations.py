"""Finds places in C++ text where a change should make a test fail, and the changes; for mutants.py. Run alone, tests itself.

A mutation changes one operator surrounded by spaces (so that template brackets do not match), a step or a `!`, or
removes a call that is a statement on its own line. Excluded are comments, strings, directives, and code that is only
checked by the compiler. Numbers are excluded too: most are initial values that a callee overwrites, sizes of buffers,
or system flags, for which other values work as well.
"""
import collections
import re

Site = collections.namedtuple("Site", "file begin end old new line")

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\b\d[\w.\']*|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
SWAPS = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&", "+": "-", "-": "+",
         "+=": "-=", "-=": "+=", "++": "--", "--": "++", "!": ""}
OPERATOR = re.compile(r"(?<=[ \n])(?:[=!<>]=|[<>+-]|&&|\|\||[+-]=)(?=[ \n])")  # surrounded by spaces: no template's bracket
STEP_OR_NOT = re.compile(r"(?<!\+)\+\+(?!\+)|(?<!-)--(?!-)|(?<![\w)\]])!(?=[\w(*])")
CALL = re.compile(r"[ \t]*((?:\(void\))?[A-Za-z_](?:[\w.:]|->|\[\w+\])*\(.*\);)[ \t]*$")
NO_CALL = re.compile(r"(?:return|throw|co_\w+|if|for|while|switch|catch|new|delete|assert)\b|"
                     r"\w+\((?:const\b[^()]*|[\w:<>]+&&?[ \w]*)\);")  # a constructor's declaration


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def statement_end(text, begin):
    """Returns the position after the next `;` that is in no bracket."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] in "({[") - (text[at] in ")}]")
        if text[at] == ";" and depth <= 0:
            return at + 1
    return len(text)


def mask(text):
    """Returns the text with the same length and spaces for excluded parts; strings keep their quotes."""
    def hide(match):
        found = match[0]
        if found[0].isdigit():
            return found
        return f'"{blank(found[1:-1])}"' if found[-1] == '"' and found[0] != "/" else blank(found)

    text = TOKEN.sub(hide, text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: blank(m[0]), text, flags=re.MULTILINE)
    text = re.sub(r"\brequires\b[^\n]*|\bvirtual\b[^\n]*= 0;", lambda m: blank(m[0]), text)
    for match in re.finditer(r"\b(?:static_assert|concept|using|typedef)\b", text):
        end = statement_end(text, match.start())
        text = text[:match.start()] + blank(text[match.start():end]) + text[end:]
    return text


def is_call(line):
    """Returns whether the line is exactly one call, and not a declaration."""
    found = CALL.match(line)
    if not found or NO_CALL.match(found[1]) or re.search(r"\)[^()]* = ", found[1]):
        return False
    return statement_end(found[1], 0) == len(found[1]) and found[1].count("(") == found[1].count(")")


def sites_of(name, text):
    """Returns all mutants of a file, in the order of the text."""
    hidden = mask(text)
    found = []

    def add(begin, end, new):
        found.append(Site(name, begin, end, text[begin:end], new, text.count("\n", 0, begin) + 1))

    for match in OPERATOR.finditer(hidden):
        if match[0][0] in "+-":  # strings support + but not -, so most of these would not compile
            begin = max(hidden.rfind(sign, 0, match.start()) for sign in ";{}") + 1
            if '"' in hidden[begin:statement_end(hidden, match.start())]:
                continue
        add(*match.span(), SWAPS[match[0]])
    for match in STEP_OR_NOT.finditer(hidden):
        add(*match.span(), SWAPS[match[0]])
    begin, last = 0, ";"
    for line in hidden.splitlines(keepends=True):
        code = line.strip()
        if last[-1] in ";{}:" and is_call(line.rstrip("\n")):
            at = begin + line.index(code)
            add(at, at + len(code), ";")
        begin += len(line)
        last = code or last
    return sorted(found)


def apply(text, site):
    assert text[site.begin:site.end] == site.old, site
    return text[:site.begin] + site.new + text[site.end:]


def shown(site):
    return f"delete {site.old}" if site.new == ";" else f"{site.old} -> {site.new}" if site.new else f"{site.old} left out"


def test():
    text = """#define A 1 + 2 // not a == b
#include "a < b.hpp"
static_assert(sizeof(int) == 4, "; 1");
template <class T, int N = 3> requires (N > 2)
void f(int a, const char* s) {
    if (a == 1 && !s) ++a; /* b < c */
    const auto t = std::string{"a"} + s + ": 1 == 2";
    std::array<int, 4> b; x->y = 'a' <= a - 0x1F;
    g(a, h(2_KiB)).again();
    return g(true);
    if (a)
        g(a);
    total +=
        g(a);
    int i(4);
    T(const T&);
    (void)lock.wait([&] { return a >= 7'000; });
    a.b(c) = d(e);
}
"""
    changes = [f"{site.line}: {shown(site)}" for site in sites_of("t", text)]
    wanted = ["6: == -> !=", "6: && -> ||", "6: ! left out", "6: ++ -> --", "8: <= -> <", "8: - -> +",
              "9: delete g(a, h(2_KiB)).again();", "13: += -> -=", "17: delete (void)lock.wait([&] { return a >= 7'000; });", "17: >= -> >"]
    assert changes == wanted, "\n".join(["", *changes])
    assert len(mask(text)) == len(text)


if __name__ == "__main__":
    test()
