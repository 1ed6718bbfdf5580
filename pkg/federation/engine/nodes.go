package engine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// node is a Node as clients see it, and as its member knows it.
type node struct{ served, cluster, name string }

// nodeWanted is the Node that a pod template asks for by name, as clients see
// it; the host name of a Node is its name.
func nodeWanted(spec *corev1.PodSpec) string {
	switch {
	case spec == nil:
		return ""
	case spec.NodeName != "":
		return spec.NodeName
	}
	return spec.NodeSelector[corev1.LabelHostname]
}

// nodeOf finds the Node that a template asks for; nil when it asks for none, or
// for one that is not known.
func (e *Engine) nodeOf(s shape) *node {
	if s.Spec.Template == nil || e.cfg.Node == nil {
		return nil
	}
	wanted := nodeWanted(s.Spec.Template.Spec)
	if wanted == "" {
		return nil
	}
	cluster, name := e.cfg.Node(wanted)
	if cluster == "" {
		return nil
	}
	return &node{served: wanted, cluster: cluster, name: name}
}

// around keeps the clusters in which the Node can be found.
func (n *node) around(clusters []placement.Cluster) []placement.Cluster {
	if n == nil || !slices.ContainsFunc(clusters, func(c placement.Cluster) bool { return c.Name == n.cluster }) {
		return clusters
	}
	return slices.DeleteFunc(slices.Clone(clusters), func(c placement.Cluster) bool { return c.Name != n.cluster })
}

// rename writes the Node's name in its member into an object for that member.
func (n *node) rename(object map[string]any, cluster string) error {
	if n == nil || n.cluster != cluster || n.name == n.served {
		return nil
	}
	for _, path := range [][]string{
		{"spec", "template", "spec", "nodeName"},
		{"spec", "template", "spec", "nodeSelector", corev1.LabelHostname},
	} {
		if v, found, err := unstructured.NestedString(object, path...); err == nil && found && v == n.served {
			if err := unstructured.SetNestedField(object, n.name, path...); err != nil {
				return err
			}
		}
	}
	return nil
}
