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
	// replicas are no part of object and hash: they have a manager of their
	// own. pods is a hash of the pod template.
	divided  bool
	replicas int32
	pods     uint64
	paused   bool
	// alike: a Job selects in the member as its template does.
	alike bool
	// overridden is set where overrides have changed something.
	overridden *overridden
	// version, when it is set, is the state of the copy that object was made for.
	version string
}

// render is a pure function of template, decision and cluster: strip, divide,
// override, mark. The marks come last, nothing can override them.
func render(id string, epoch int64, key marks.Key, t *template, d *decision, cluster *placement.Cluster) (*rendered, error) {
	u, err := t.decode()
	if err != nil {
		return nil, err
	}
	alike := retain.StripAlike(u)
	switch {
	case d.divided && d.revise != nil:
		if u.Object, err = d.revise(u.Object, d.targets[cluster.Name]); err != nil {
			return nil, err
		}
	case d.divided:
		if err := unstructured.SetNestedField(u.Object, int64(d.targets[cluster.Name]), "spec", "replicas"); err != nil {
			return nil, fmt.Errorf("replicas of %s: %w", key, err)
		}
	}
	if err := d.node.rename(u.Object, cluster.Name); err != nil {
		return nil, fmt.Errorf("node of %s: %w", key, err)
	}
	if err := d.divideInto(u, cluster.Name); err != nil {
		return nil, fmt.Errorf("share of %s: %w", key, err)
	}
	changed, err := d.override(u, cluster)
	if err != nil {
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
	maps.Copy(labels, d.eviction.labelsFor(cluster.Name))
	maps.Copy(labels, set.Labels())
	maps.Copy(annotations, set.Annotations())
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	r := &rendered{object: u, provenance: set.Provenance(), alike: alike, overridden: changed}
	if err := r.measure(divisible(key.GroupKind())); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return r, nil
}

// conform leaves a Job that is there with the selector that it was made with:
// it can never be changed.
func (r *rendered) conform(t *template, there *copyRecord) error {
	if !r.alike || there == nil || there.selects == t.UID {
		return nil
	}
	r.alike = false
	retain.Generate(r.object)
	return r.measure(false)
}

// override applies overrides, and says what they have changed.
func (d *decision) override(u *unstructured.Unstructured, cluster *placement.Cluster) (*overridden, error) {
	if d.overrides.Empty() {
		return nil, nil
	}
	plain := u.DeepCopy()
	if err := d.overrides.Apply(u, cluster); err != nil {
		return nil, err
	}
	return changedBy(plain, u), nil
}

// measure takes the replicas out and hashes what is left.
func (r *rendered) measure(divisible bool) error {
	var err error
	if divisible {
		n, found, err := unstructured.NestedInt64(r.object.Object, "spec", "replicas")
		if err != nil {
			return err
		}
		if found {
			r.divided, r.replicas = true, int32(n)
			unstructured.RemoveNestedField(r.object.Object, "spec", "replicas")
		}
		spec, _ := r.object.Object["spec"].(map[string]any)
		r.paused, _ = spec["paused"].(bool)
		if r.pods, err = hashOf(spec["template"]); err != nil {
			return err
		}
	}
	r.hash, err = appliedHash(r.object.Object)
	return err
}

// body is the apply request. With a UID it only ever changes that object;
// without, it creates one, with this many replicas.
func (r *rendered) body(uid types.UID, replicas int32) ([]byte, error) {
	if uid == "" && r.divided {
		if err := unstructured.SetNestedField(r.object.Object, int64(replicas), "spec", "replicas"); err != nil {
			return nil, err
		}
	}
	annotations := r.object.GetAnnotations()
	maps.Copy(annotations, r.provenance)
	r.object.SetAnnotations(annotations)
	if uid != "" {
		r.object.SetUID(uid)
		r.object.SetResourceVersion(r.version)
	}
	return json.Marshal(r.object.Object)
}
