package transcode

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
)

const hex = "0123456789abcdef"

// safe marks the bytes that stand for themselves in a JSON string, where HTML
// is escaped as encoding/json does by default.
var safe = func() (t [utf8.RuneSelf]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return t
}()

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if safe[c] {
				i++
				continue
			}
			dst = appendEscape(append(dst, s[start:i]...), c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(append(dst, s[start:i]...), `\ufffd`...)
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, s[start:i]...), `\u202`...)
			dst = append(dst, hex[r&0xf])
		default:
			i += size
			continue
		}
		i += size
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}

// onlyBytes reads a message whose only field is 1.
func onlyBytes(b []byte) (v []byte, set bool, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num != 1 || typ != protowire.BytesType || set {
			return nil, false, ErrOdd
		}
		v, n2 := protowire.ConsumeBytes(b[n:])
		if n2 < 0 {
			return nil, false, ErrOdd
		}
		set = true
		if b = b[n+n2:]; len(b) == 0 {
			return v, true, nil
		}
	}
	return nil, false, nil
}

// appendQuantity appends a quantity; one that is written as a Quantity writes
// itself is taken as it is.
func appendQuantity(dst, b []byte) ([]byte, error) {
	v, set, err := onlyBytes(b)
	if err != nil {
		return nil, err
	}
	if !set {
		return append(dst, `"0"`...), nil
	}
	if canonical(v) {
		return append(append(append(dst, '"'), v...), '"'), nil
	}
	q, err := resource.ParseQuantity(string(v))
	if err != nil {
		return nil, ErrOdd
	}
	return strconv.AppendQuote(dst, q.String()), nil
}

// canonical recognises the common canonical quantities: a plain, a milli or a
// binary number that no larger unit expresses.
func canonical(v []byte) bool {
	n, digits := 0, 0
	for digits < len(v) && v[digits] >= '0' && v[digits] <= '9' {
		n = n*10 + int(v[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 12 || v[0] == '0' {
		return string(v) == "0"
	}
	switch string(v[digits:]) {
	case "", "m":
		return n%1000 != 0
	case "Ki", "Mi", "Gi":
		return n%1024 != 0
	}
	return false
}

// plainSet says that a document is what field sets nearly always are: objects in
// objects, without blanks and without anything that is written otherwise in
// JSON. Such a one is its own canonical form. managedFields are a third of an
// object, so that the usual ones must cost little.
func plainSet(b []byte) bool {
	depth := 0
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '{' && (i == 0 || b[i-1] == ':'):
			if depth++; depth > maxDepth {
				return false
			}
			if i++; i < len(b) && b[i] == '}' {
				continue
			}
			if i = plainKey(b, i); i < 0 {
				return false
			}
		case depth > 0 && c == '}' && (b[i-1] == '{' || b[i-1] == '}'):
			if depth--; depth == 0 {
				return i == len(b)-1
			}
			i++
		case depth > 0 && c == ',' && b[i-1] == '}':
			if i = plainKey(b, i+1); i < 0 {
				return false
			}
		default:
			return false
		}
	}
	return false
}

// plainKey gives the place behind a key and its colon; -1 where there is none,
// or one that is not plain.
func plainKey(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			if i+2 < len(b) && b[i+1] == ':' && b[i+2] == '{' {
				return i + 2
			}
			return -1
		case c == '\\':
			if i++; i == len(b) || b[i] != '"' && b[i] != '\\' {
				return -1
			}
		case c < ' ' || c >= 0x7f || c == '<' || c == '>' || c == '&':
			return -1
		}
	}
	return -1
}

// appendFieldsV1 appends a field set, checked and compact.
func appendFieldsV1(dst, b []byte) ([]byte, error) {
	v, _, err := onlyBytes(b)
	if err != nil {
		return nil, err
	}
	if len(v) == 0 || v[0] != '{' {
		return appendLeaf(dst, fieldsV1Leaf, b)
	}
	if plainSet(v) {
		return append(dst, v...), nil
	}
	text, err := json.Marshal(json.RawMessage(v))
	if err != nil {
		return nil, ErrOdd
	}
	return append(dst, text...), nil
}
