package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// FieldTable lists the selectable fields of a kind beyond metadata.name and
// metadata.namespace.
type FieldTable struct {
	Names []string
	read  func(enc cache.Encoding, raw []byte, values []string) error
}

// FieldsOf returns the table of a kind; a kind without one has no such fields.
func FieldsOf(group, kind string) *FieldTable {
	return tables[group+"/"+kind]
}

// Read returns the values in the order of Names. They alias raw.
func (t *FieldTable) Read(enc cache.Encoding, raw []byte) ([]string, error) {
	values := make([]string, len(t.Names))
	if err := t.read(enc, raw, values); err != nil {
		return nil, err
	}
	return values, nil
}

var tables = map[string]*FieldTable{
	"/Pod": pathTable(finishPod,
		fieldPath{"spec.nodeName", PodNodeName},
		fieldPath{"spec.restartPolicy", path(2, 3)},
		fieldPath{"spec.schedulerName", path(2, 19)},
		fieldPath{"spec.serviceAccountName", path(2, 8)},
		fieldPath{"spec.hostNetwork", path(2, 11)},
		fieldPath{"status.phase", path(3, 1)},
		fieldPath{"status.podIP", path(3, 6)},
		fieldPath{"status.nominatedNodeName", PodNominatedNodeName},
	),
	"/Node": pathTable(func(_ cache.Encoding, _ []byte, v []string) error {
		v[0] = boolText(v[0])
		return nil
	},
		fieldPath{"spec.unschedulable", path(2, 4)},
	),
	"/Event": pathTable(finishEvent,
		fieldPath{"involvedObject.kind", EventInvolvedKind},
		fieldPath{"involvedObject.namespace", EventInvolvedNamespace},
		fieldPath{"involvedObject.name", EventInvolvedName},
		fieldPath{"involvedObject.uid", EventInvolvedUID},
		fieldPath{"involvedObject.apiVersion", EventInvolvedAPIVersion},
		fieldPath{"involvedObject.resourceVersion", path(2, 6)},
		fieldPath{"involvedObject.fieldPath", path(2, 7)},
		fieldPath{"reason", path(3)},
		fieldPath{"reportingComponent", path(14)},
		fieldPath{"source", path(5, 1)},
		fieldPath{"type", path(9)},
	),
	"apps/ReplicaSet": pathTable(func(_ cache.Encoding, _ []byte, v []string) error {
		if v[0] == "" {
			v[0] = "0"
		}
		return nil
	},
		fieldPath{"status.replicas", path(3, 1)},
	),
	"batch/Job": pathTable(func(_ cache.Encoding, _ []byte, v []string) error {
		if v[0] == "" {
			v[0] = "0"
		}
		return nil
	},
		fieldPath{"status.successful", path(3, 5)},
	),
}

type fieldPath struct {
	name string
	path Path
}

// path is completed with the field's own name by pathTable.
func path(proto ...int32) Path { return Path{Proto: proto} }

// jsonNames overrides the JSON path where it is not the name of the field.
var jsonNames = map[string]string{"source": "source.component", "status.successful": "status.succeeded"}

func pathTable(finish func(cache.Encoding, []byte, []string) error, fields ...fieldPath) *FieldTable {
	t := &FieldTable{Names: make([]string, len(fields))}
	paths := make([]Path, len(fields))
	for i, f := range fields {
		t.Names[i], paths[i] = f.name, f.path
		if paths[i].JSON == nil {
			name := f.name
			if n, ok := jsonNames[name]; ok {
				name = n
			}
			paths[i].JSON = strings.Split(name, ".")
		}
	}
	t.read = func(enc cache.Encoding, raw []byte, values []string) (err error) {
		for i, p := range paths {
			if values[i], err = Text(enc, raw, p); err != nil {
				return err
			}
		}
		return finish(enc, raw, values)
	}
	return t
}

func boolText(s string) string {
	if s == "" || s == "0" || s == "false" {
		return "false"
	}
	return "true"
}

func finishPod(enc cache.Encoding, raw []byte, v []string) (err error) {
	v[4] = boolText(v[4])
	if v[6] == "" {
		v[6], err = firstPodIP(enc, raw)
	}
	return err
}

// firstPodIP reads status.podIPs[0].ip, which counts where podIP is not set.
func firstPodIP(enc cache.Encoding, raw []byte) (string, error) {
	if enc == cache.JSON {
		at, ok, err := locate(raw, []string{"status", "podIPs"})
		if err != nil || !ok || raw[at.from] != '[' {
			return "", err
		}
		ip, first := "", true
		err = eachItem(raw, at, func(s span) (err error) {
			if first {
				ip, err = textJSON(s.of(raw), []string{"ip"})
				first = false
			}
			return err
		})
		return ip, err
	}
	const status, podIPs = 3, 12
	for len(raw) > 0 {
		f, rest, err := nextField(raw)
		if err != nil {
			return "", err
		}
		raw = rest
		if f.num != status || f.typ != protowire.BytesType {
			continue
		}
		for msg := f.val; len(msg) > 0; {
			e, rest, err := nextField(msg)
			if err != nil {
				return "", err
			}
			msg = rest
			if e.num == podIPs && e.typ == protowire.BytesType {
				return textProto(e.val, []int32{1})
			}
		}
	}
	return "", nil
}

// finishEvent falls back to the reporting component where no source is set.
func finishEvent(_ cache.Encoding, _ []byte, v []string) error {
	if v[9] == "" {
		v[9] = v[8]
	}
	return nil
}
