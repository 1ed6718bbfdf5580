package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// divideInto writes a cluster's part of what is divided, but for replicas.
func (d *decision) divideInto(u *unstructured.Unstructured, cluster string) error {
	if share, ok := d.shares[cluster]; ok {
		for field, v := range map[string]any{
			"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(share.Surge), "maxUnavailable": int64(share.Unavailable)},
		} {
			if err := unstructured.SetNestedField(u.Object, v, "spec", "strategy", field); err != nil {
				return err
			}
		}
	}
	for field, parts := range d.disruption {
		// A cluster without replicas has nothing to guard.
		if err := unstructured.SetNestedField(u.Object, int64(parts[cluster]), "spec", field); err != nil {
			return err
		}
	}
	if err := d.tellShare(u, cluster); err != nil {
		return err
	}
	if b, ok := d.bounds[cluster]; ok {
		for field, n := range map[string]int32{"minReplicas": b.Min, "maxReplicas": b.Max} {
			if err := unstructured.SetNestedField(u.Object, int64(n), "spec", field); err != nil {
				return err
			}
		}
	}
	return nil
}
