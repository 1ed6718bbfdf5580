package sandbox

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// matcher matches Lua's patterns and counts its steps: they may be exponential.
type matcher struct {
	machine  *machine
	source   string
	pattern  string
	anchored bool

	groups []group
	depth  int
}

// group is a part in parentheses.
type group struct {
	start, length int
}

const (
	groupOpen     = -1
	groupPosition = -2
	mostGroups    = 32
	deepestMatch  = 200
)

func (m *machine) matcher(source, pattern string) *matcher {
	x := &matcher{machine: m, source: source, pattern: pattern}
	if rest, ok := strings.CutPrefix(pattern, "^"); ok {
		x.anchored, x.pattern = true, rest
	}
	return x
}

// search finds the first match at or after from; -1 when there is none.
func (x *matcher) search(from int) (start, end int) {
	for start = from; start <= len(x.source); start++ {
		if end = x.at(start); end >= 0 {
			return start, end
		}
		if x.anchored {
			break
		}
	}
	return -1, -1
}

// at matches at one place; -1 when it does not.
func (x *matcher) at(start int) int {
	x.groups, x.depth = x.groups[:0], 0
	return x.match(start, 0)
}

func (x *matcher) fail(reason string) { x.machine.state.RaiseError("malformed pattern (%s)", reason) }

func (x *matcher) step() {
	if !x.machine.meter.step() {
		x.machine.state.RaiseError("%s", x.machine.meter.Err().Error())
	}
}

// match matches pattern[p:] at source[s:] and returns where it ends, or -1.
func (x *matcher) match(s, p int) int {
	if x.depth++; x.depth > deepestMatch {
		x.machine.state.RaiseError("pattern too complex")
	}
	defer func() { x.depth-- }()
	for p < len(x.pattern) {
		x.step()
		switch c := x.pattern[p]; {
		case c == '(':
			return x.open(s, p+1)
		case c == ')':
			return x.shut(s, p+1)
		case c == '$' && p+1 == len(x.pattern):
			if s == len(x.source) {
				return s
			}
			return -1
		case c == '%' && p+1 < len(x.pattern) && strings.IndexByte("bf0123456789", x.pattern[p+1]) >= 0:
			var ok bool
			if s, p, ok = x.special(s, p+1); !ok {
				return -1
			}
			continue
		}
		next := x.classEnd(p)
		repeat := byte(0)
		if next < len(x.pattern) {
			repeat = x.pattern[next]
		}
		switch repeat {
		case '*':
			return x.most(s, 0, p, next)
		case '+':
			return x.most(s, 1, p, next)
		case '-':
			return x.least(s, p, next)
		case '?':
			if x.single(s, p, next) {
				if end := x.match(s+1, next+1); end >= 0 {
					return end
				}
			}
			p = next + 1
			continue
		}
		if !x.single(s, p, next) {
			return -1
		}
		s, p = s+1, next
	}
	return s
}

// most tries the longest repetition first.
func (x *matcher) most(s, atLeast, p, next int) int {
	n := 0
	for x.single(s+n, p, next) {
		x.step()
		n++
	}
	for ; n >= atLeast; n-- {
		if end := x.match(s+n, next+1); end >= 0 {
			return end
		}
	}
	return -1
}

// least tries the shortest repetition first.
func (x *matcher) least(s, p, next int) int {
	for {
		if end := x.match(s, next+1); end >= 0 {
			return end
		}
		if !x.single(s, p, next) {
			return -1
		}
		s++
	}
}

func (x *matcher) open(s, p int) int {
	if len(x.groups) >= mostGroups {
		x.machine.state.RaiseError("too many captures")
	}
	g := group{s, groupOpen}
	if p < len(x.pattern) && x.pattern[p] == ')' {
		g.length, p = groupPosition, p+1
	}
	n := len(x.groups)
	x.groups = append(x.groups, g)
	end := x.match(s, p)
	if end < 0 {
		x.groups = x.groups[:n]
	}
	return end
}

func (x *matcher) shut(s, p int) int {
	for i := len(x.groups) - 1; i >= 0; i-- {
		if x.groups[i].length != groupOpen {
			continue
		}
		x.groups[i].length = s - x.groups[i].start
		end := x.match(s, p)
		if end < 0 {
			x.groups[i].length = groupOpen
		}
		return end
	}
	x.machine.state.RaiseError("invalid pattern capture")
	return -1
}

// special matches %b, %f and back references; p is after the percent sign.
func (x *matcher) special(s, p int) (int, int, bool) {
	switch c := x.pattern[p]; c {
	case 'b':
		return x.balanced(s, p+1)
	case 'f':
		p++
		if p >= len(x.pattern) || x.pattern[p] != '[' {
			x.fail("missing '[' after '%f'")
		}
		next := x.classEnd(p)
		var before, here byte
		if s > 0 {
			before = x.source[s-1]
		}
		if s < len(x.source) {
			here = x.source[s]
		}
		return s, next, !x.inSet(before, p, next) && x.inSet(here, p, next)
	default:
		i := int(c) - '1'
		if i < 0 || i >= len(x.groups) || x.groups[i].length == groupOpen {
			x.machine.state.RaiseError("invalid capture index")
		}
		g := x.groups[i]
		said := x.source[g.start : g.start+max(g.length, 0)]
		return s + len(said), p + 1, strings.HasPrefix(x.source[s:], said)
	}
}

func (x *matcher) balanced(s, p int) (int, int, bool) {
	if p+1 >= len(x.pattern) {
		x.fail("missing arguments to '%b'")
	}
	opening, closing := x.pattern[p], x.pattern[p+1]
	if s >= len(x.source) || x.source[s] != opening {
		return s, p, false
	}
	depth := 1
	for i := s + 1; i < len(x.source); i++ {
		x.step()
		switch x.source[i] {
		case closing:
			if depth--; depth == 0 {
				return i + 1, p + 2, true
			}
		case opening:
			depth++
		}
	}
	return s, p, false
}

// classEnd is where a single character class ends.
func (x *matcher) classEnd(p int) int {
	c := x.pattern[p]
	p++
	switch c {
	case '%':
		if p >= len(x.pattern) {
			x.fail("ends with '%'")
		}
		return p + 1
	case '[':
		if p < len(x.pattern) && x.pattern[p] == '^' {
			p++
		}
		for first := true; ; first = false {
			if p >= len(x.pattern) {
				x.fail("missing ']'")
			}
			switch {
			case x.pattern[p] == ']' && !first:
				return p + 1
			case x.pattern[p] == '%':
				if p++; p >= len(x.pattern) {
					x.fail("missing ']'")
				}
			}
			p++
		}
	}
	return p
}

// single says whether one character matches pattern[p:next].
func (x *matcher) single(s, p, next int) bool {
	if s >= len(x.source) {
		return false
	}
	c := x.source[s]
	switch x.pattern[p] {
	case '.':
		return true
	case '%':
		return inClass(c, x.pattern[p+1])
	case '[':
		return x.inSet(c, p, next)
	}
	return c == x.pattern[p]
}

func (x *matcher) inSet(c byte, p, next int) bool {
	set := x.pattern[p+1 : next-1]
	negated := false
	if strings.HasPrefix(set, "^") {
		set, negated = set[1:], true
	}
	for i := 0; i < len(set); i++ {
		switch {
		case set[i] == '%' && i+1 < len(set):
			i++
			if inClass(c, set[i]) {
				return !negated
			}
		case i+2 < len(set) && set[i+1] == '-':
			if set[i] <= c && c <= set[i+2] {
				return !negated
			}
			i += 2
		case set[i] == c:
			return !negated
		}
	}
	return negated
}

// inClass is one of %a %c %d and so on; upper case is the complement.
func inClass(c, class byte) bool {
	lower := class | 0x20
	var in bool
	switch lower {
	case 'a':
		in = isLetter(c)
	case 'c':
		in = c < 0x20 || c == 0x7f
	case 'd':
		in = c >= '0' && c <= '9'
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 'p':
		in = c > 0x20 && c < 0x7f && !isLetter(c) && (c < '0' || c > '9')
	case 's':
		in = c == ' ' || c >= '\t' && c <= '\r'
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = isLetter(c) || c >= '0' && c <= '9'
	case 'x':
		in = c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
	case 'z':
		in = c == 0
	default:
		return c == class
	}
	if !isLetter(class) {
		return c == class
	}
	return in == (class == lower)
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// capture is group i of a match; the whole match when there is no group.
func (x *matcher) capture(i, start, end int) lua.LValue {
	if i >= len(x.groups) {
		if i > 0 {
			x.machine.state.RaiseError("invalid capture index")
		}
		return x.text(start, end)
	}
	switch g := x.groups[i]; g.length {
	case groupPosition:
		return lua.LNumber(g.start + 1)
	case groupOpen:
		x.machine.state.RaiseError("unfinished capture")
		return lua.LNil
	default:
		return x.text(g.start, g.start+g.length)
	}
}

// text shares the bytes of the source.
func (x *matcher) text(from, to int) lua.LValue {
	x.machine.charge(16)
	return lua.LString(x.source[from:to])
}

// pushCaptures pushes all groups, or the whole match when there is none and it
// is asked for.
func (x *matcher) pushCaptures(start, end int, whole bool) int {
	n := len(x.groups)
	if n == 0 && whole {
		n = 1
	}
	values := make([]lua.LValue, 0, n)
	for i := range n {
		values = append(values, x.capture(i, start, end))
	}
	for _, v := range values {
		x.machine.state.Push(v)
	}
	return n
}

// expand fills %0 to %9 of a replacement.
func (x *matcher) expand(replacement string, start, end int) string {
	if strings.IndexByte(replacement, '%') < 0 {
		return replacement
	}
	var b strings.Builder
	for i := 0; i < len(replacement); i++ {
		c := replacement[i]
		if c != '%' || i+1 == len(replacement) {
			b.WriteByte(c)
			continue
		}
		i++
		said := replacement[i : i+1]
		if c = replacement[i]; c == '0' {
			said = x.source[start:end]
		} else if c >= '1' && c <= '9' {
			said = x.capture(int(c-'1'), start, end).String()
		}
		x.machine.charge(len(said))
		b.WriteString(said)
	}
	return b.String()
}
