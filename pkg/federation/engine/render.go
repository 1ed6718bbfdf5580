package engine

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
)

// rendered is what a member is told about one template.
type rendered struct {
	object     *unstructured.Unstructured
	provenance map[string]string
	hash       uint64
}

// render is a pure function of template, decision and cluster: strip, divide,
// override, mark. The marks come last, nothing can override them.
func render(id string, epoch int64, key marks.Key, t *template, d *decision, cluster *placement.Cluster) (*rendered, error) {
	u, err := t.decode()
	if err != nil {
		return nil, err
	}
	retain.Strip(u)
	if d.divided {
		if err := unstructured.SetNestedField(u.Object, int64(d.targets[cluster.Name]), "spec", "replicas"); err != nil {
			return nil, fmt.Errorf("replicas of %s: %w", key, err)
		}
	}
	if err := d.node.rename(u.Object, cluster.Name); err != nil {
		return nil, fmt.Errorf("node of %s: %w", key, err)
	}
	if err := d.overrides.Apply(u, cluster); err != nil {
		return nil, fmt.Errorf("%w: %w", errOverride, err)
	}
	set := marks.Set{
		ControlPlane: id, Template: key, TemplateUID: t.UID, TemplateRevision: t.ResourceVersion,
		Epoch: epoch, BindingID: d.bindingID, Revision: d.stamp,
	}
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(labels, set.Labels())
	maps.Copy(annotations, set.Annotations())
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	hash, err := appliedHash(u.Object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return &rendered{object: u, provenance: set.Provenance(), hash: hash}, nil
}

// body is the apply request. With a UID it only ever changes that object.
func (r *rendered) body(uid types.UID) ([]byte, error) {
	annotations := r.object.GetAnnotations()
	maps.Copy(annotations, r.provenance)
	r.object.SetAnnotations(annotations)
	if uid != "" {
		r.object.SetUID(uid)
	}
	return json.Marshal(r.object.Object)
}
