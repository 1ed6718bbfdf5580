// Package prune takes out of an object what an API server does not know, because
// it is older or has another schema: server-side apply refuses unknown fields.
//
//	OpenAPI v3 document -> Document.Add (a tree of field names, per kind in use)
//	object + tree -> Prune -> the object without unknown fields, their names
//
// Pure functions. A document takes megabytes, the tree of a kind tens of
// kilobytes; kinds of one document share what they have in common.
package prune

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrUnknownKind is returned for a kind that a document does not describe.
var ErrUnknownKind = errors.New("the kind is not in the OpenAPI document")

// Node is what is known of one value.
type Node struct {
	// fields of an object; nil when it has none by name.
	fields map[string]*Node
	// values of a map, items of a list.
	values, items *Node
	// open: anything may be here.
	open bool
}

// anything is shared by all values that are not looked into.
var anything = &Node{open: true}

// Document holds the trees of the kinds of one OpenAPI document that are in use.
type Document struct {
	kinds map[schema.GroupVersionKind]*Node
	named map[string]*Node
	names map[string]string
}

// NewDocument is empty; kinds are added as they come into use.
func NewDocument() *Document {
	return &Document{kinds: map[schema.GroupVersionKind]*Node{}, named: map[string]*Node{}, names: map[string]string{}}
}

// Kind returns the tree of a kind; nil when it has not been added.
func (d *Document) Kind(gvk schema.GroupVersionKind) *Node { return d.kinds[gvk] }

// document is what is read of OpenAPI v3.
type document struct {
	Components struct {
		Schemas map[string]*openAPI `json:"schemas"`
	} `json:"components"`
}

type openAPI struct {
	Ref        string              `json:"$ref"`
	Type       string              `json:"type"`
	AllOf      []*openAPI          `json:"allOf"`
	Properties map[string]*openAPI `json:"properties"`
	Items      *openAPI            `json:"items"`
	Additional *additional         `json:"additionalProperties"`
	Preserve   bool                `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded   bool                `json:"x-kubernetes-embedded-resource"`
	IntOrText  bool                `json:"x-kubernetes-int-or-string"`
	Kinds      []struct {
		Group, Version, Kind string
	} `json:"x-kubernetes-group-version-kind"`
}

// additional is a schema or a boolean.
type additional struct {
	schema *openAPI
	any    bool
}

func (a *additional) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &a.any); err == nil {
		return nil
	}
	return json.Unmarshal(raw, &a.schema)
}

// Add reads the tree of a kind from the document's JSON, which is not kept.
func (d *Document) Add(raw []byte, gvk schema.GroupVersionKind) error {
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("OpenAPI document: %w", err)
	}
	for name, s := range doc.Components.Schemas {
		if s == nil {
			continue
		}
		for _, k := range s.Kinds {
			if k.Group == gvk.Group && k.Version == gvk.Version && k.Kind == gvk.Kind {
				b := builder{doc: &doc, to: d}
				d.kinds[gvk] = b.ref(name)
				return nil
			}
		}
	}
	return fmt.Errorf("%w: %s", ErrUnknownKind, gvk)
}

type builder struct {
	doc *document
	to  *Document
}

// own types are described by Go structs; where those say no more than "object",
// anything may be inside.
var own = []string{"io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator.", "io.k8s.metrics."}

// ref builds a named schema, once: they may refer to themselves.
func (b *builder) ref(name string) *Node {
	if n := b.to.named[name]; n != nil {
		return n
	}
	s := b.doc.Components.Schemas[name]
	if s == nil {
		return anything
	}
	n := &Node{}
	b.to.named[name] = n
	loose := slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(name, p) })
	*n = *b.build(s, loose)
	return n
}

// build makes the node of a schema. loose says that an object without any
// description may hold anything; in a CustomResourceDefinition it holds nothing.
func (b *builder) build(s *openAPI, loose bool) *Node {
	if s == nil {
		return anything
	}
	for _, part := range append([]*openAPI{s}, s.AllOf...) {
		if part == nil || part.Ref == "" {
			continue
		}
		return b.ref(part.Ref[strings.LastIndex(part.Ref, "/")+1:])
	}
	n := &Node{open: s.Preserve || s.IntOrText}
	switch {
	case s.Items != nil:
		n.items = b.build(s.Items, loose)
	case s.Additional != nil && s.Additional.schema != nil:
		n.values = b.build(s.Additional.schema, loose)
	case s.Additional != nil && s.Additional.any:
		n.open = true
	case len(s.Properties) == 0 && (s.Type != "object" || loose):
		n.open = true
	}
	if len(s.Properties) > 0 || s.Embedded {
		n.fields = make(map[string]*Node, len(s.Properties))
		for name, p := range s.Properties {
			n.fields[b.intern(name)] = b.build(p, loose)
		}
	}
	if s.Embedded {
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			n.fields[name] = anything
		}
	}
	if n.open && n.fields == nil && n.items == nil && n.values == nil {
		return anything
	}
	return n
}

func (b *builder) intern(name string) string {
	if s, ok := b.to.names[name]; ok {
		return s
	}
	b.to.names[name] = strings.Clone(name)
	return b.to.names[name]
}
