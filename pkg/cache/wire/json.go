package wire

import (
	"bytes"
	"encoding/json"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// span is a part of a JSON text.
type span struct{ from, to int }

func (s span) of(b []byte) []byte { return b[s.from:s.to] }

// member is one name and value of a JSON object.
type member struct {
	key   string
	name  span // the quoted name
	value span
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the end of the string that opens at i.
func skipString(b []byte, i int) (int, error) {
	for j := i + 1; j < len(b); j++ {
		switch b[j] {
		case '\\':
			j++
		case '"':
			return j + 1, nil
		}
	}
	return 0, malformed("open string at %d", i)
}

// skipValue returns the end of the value that starts at i. Nesting is counted,
// not recursed into, so that depth costs nothing.
func skipValue(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, malformed("no value at %d", i)
	}
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, err := skipString(b, i)
			if err != nil {
				return 0, err
			}
			i = end
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ' ', '\t', '\n', '\r', ',', ':':
			if depth == 0 {
				return 0, malformed("no value at %d", i)
			}
			i++
			continue
		default:
			for i < len(b) && !bytes.ContainsRune([]byte(" \t\n\r,:]}[{\""), rune(b[i])) {
				i++
			}
		}
		if depth <= 0 {
			if depth < 0 {
				return 0, malformed("closed too often at %d", i)
			}
			return i, nil
		}
	}
	return 0, malformed("value is not closed")
}

// eachElement calls fn with the span of every element between the brackets
// that open at i: values of an array, or names and values of an object.
func eachMember(b []byte, s span, fn func(member) error) error {
	i := skipSpace(b, s.from)
	if i >= s.to || b[i] != '{' {
		return malformed("no object at %d", s.from)
	}
	i = skipSpace(b, i+1)
	for i < s.to && b[i] != '}' {
		if b[i] != '"' {
			return malformed("no name at %d", i)
		}
		end, err := skipString(b, i)
		if err != nil {
			return err
		}
		m := member{name: span{i, end}}
		if err := json.Unmarshal(b[i:end], &m.key); err != nil {
			return malformed("name at %d: %v", i, err)
		}
		i = skipSpace(b, end)
		if i >= s.to || b[i] != ':' {
			return malformed("no colon at %d", i)
		}
		i = skipSpace(b, i+1)
		if end, err = skipValue(b[:s.to], i); err != nil {
			return err
		}
		m.value = span{i, end}
		if err := fn(m); err != nil {
			return err
		}
		if i, err = afterElement(b, end, s.to, '}'); err != nil {
			return err
		}
	}
	return nil
}

// eachItem calls fn with the span of every element of an array.
func eachItem(b []byte, s span, fn func(span) error) error {
	i := skipSpace(b, s.from)
	if i >= s.to || b[i] != '[' {
		return malformed("no array at %d", s.from)
	}
	i = skipSpace(b, i+1)
	for i < s.to && b[i] != ']' {
		end, err := skipValue(b[:s.to], i)
		if err != nil {
			return err
		}
		if err := fn(span{i, end}); err != nil {
			return err
		}
		if i, err = afterElement(b, end, s.to, ']'); err != nil {
			return err
		}
	}
	return nil
}

// afterElement steps over the comma behind an element.
func afterElement(b []byte, i, to int, closing byte) (int, error) {
	i = skipSpace(b, i)
	if i < to && b[i] == ',' {
		return skipSpace(b, i+1), nil
	}
	if i < to && b[i] == closing {
		return i, nil
	}
	return 0, malformed("no comma at %d", i)
}

// find returns the only member of this name. A null counts as absent.
func find(b []byte, s span, key string) (m member, ok bool, err error) {
	err = eachMember(b, s, func(e member) error {
		if e.key != key {
			return nil
		}
		if ok {
			return malformed("%q is there twice", key)
		}
		m, ok = e, true
		return nil
	})
	return m, ok, err
}

func isNull(b []byte, s span) bool { return string(s.of(b)) == "null" }

func parseMetaJSON(raw []byte) (Meta, error) {
	if !json.Valid(raw) {
		return Meta{}, malformed("no JSON")
	}
	metadata, ok, err := find(raw, span{0, len(raw)}, "metadata")
	if err != nil {
		return Meta{}, err
	}
	if !ok {
		return Meta{}, malformed("no metadata")
	}
	var m Meta
	seen := map[string]bool{}
	err = eachMember(raw, metadata.value, func(e member) error {
		if seen[e.key] {
			return malformed("%q is there twice", e.key)
		}
		seen[e.key] = true
		return m.addJSON(e.key, e.value.of(raw))
	})
	return m, err
}

func (m *Meta) addJSON(key string, value []byte) error {
	if string(value) == "null" {
		return nil
	}
	var err error
	switch key {
	case "name":
		err = json.Unmarshal(value, &m.Name)
	case "namespace":
		err = json.Unmarshal(value, &m.Namespace)
	case "uid":
		err = json.Unmarshal(value, &m.UID)
	case "resourceVersion":
		err = json.Unmarshal(value, &m.ResourceVersion)
	case "generation":
		err = json.Unmarshal(value, &m.Generation)
	case "deletionTimestamp":
		m.Deleting = true
	case "labels":
		m.Labels, err = pairsJSON(value)
	case "annotations":
		m.Annotations, err = pairsJSON(value)
	case "ownerReferences":
		m.Owners, err = ownersJSON(value)
	}
	if err != nil {
		return malformed("metadata.%s: %v", key, err)
	}
	return nil
}

func pairsJSON(value []byte) ([]Pair, error) {
	var set map[string]string
	if err := json.Unmarshal(value, &set); err != nil {
		return nil, err
	}
	pairs := make([]Pair, 0, len(set))
	for k, v := range set {
		pairs = append(pairs, Pair{k, v})
	}
	return sortPairs(pairs), nil
}

func ownersJSON(value []byte) ([]cache.OwnerRef, error) {
	var owners []cache.OwnerRef
	err := eachItem(value, span{0, len(value)}, func(s span) error {
		var o cache.OwnerRef
		err := eachMember(value, s, func(e member) error {
			v := e.value.of(value)
			switch e.key {
			case "apiVersion":
				return json.Unmarshal(v, &o.APIVersion)
			case "kind":
				return json.Unmarshal(v, &o.Kind)
			case "name":
				return json.Unmarshal(v, &o.Name)
			case "uid":
				return json.Unmarshal(v, &o.UID)
			case "controller":
				return json.Unmarshal(v, &o.Controller)
			}
			return nil
		})
		owners = append(owners, o)
		return err
	})
	return owners, err
}

// textJSON reads the scalar at a path.
func textJSON(raw []byte, path []string) (string, error) {
	at, ok, err := locate(raw, path)
	if err != nil || !ok {
		return "", err
	}
	v := at.of(raw)
	if v[0] != '"' {
		if v[0] == '{' || v[0] == '[' || string(v) == "null" {
			return "", nil
		}
		return string(v), nil
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		return "", malformed("string: %v", err)
	}
	return s, nil
}

// locate finds the value at a path; what lies below a scalar is absent.
func locate(raw []byte, path []string) (span, bool, error) {
	at := span{0, len(raw)}
	for depth, key := range path {
		if i := skipSpace(raw, at.from); i >= at.to || raw[i] != '{' {
			if depth == 0 {
				return span{}, false, malformed("no object")
			}
			return span{}, false, nil
		}
		m, ok, err := find(raw, at, key)
		if err != nil || !ok {
			return span{}, false, err
		}
		at = m.value
	}
	return at, true, nil
}
