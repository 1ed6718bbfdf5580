// Package dependencies reads from a workload which objects its Pods cannot
// start without.
package dependencies

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ref names what a workload needs: a ConfigMap, Secret, ServiceAccount or
// PersistentVolumeClaim of its namespace, unless it says otherwise.
type Ref struct {
	APIVersion string // "" means "v1"
	Kind       string
	Namespace  string // "" means the workload's
	Name       string
	// Selector matches labels, where there is no name.
	Selector string
}

// Sorted sorts references, each once.
func Sorted(refs []Ref) []Ref {
	slices.SortFunc(refs, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Selector, b.Selector))
	})
	return slices.Compact(refs)
}

// workload covers all kinds with a pod template.
type workload struct {
	Spec struct {
		Template    *corev1.PodTemplateSpec `json:"template"`
		JobTemplate *struct {
			Spec struct {
				Template *corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

// Of reads the references from a workload in JSON, sorted, each once. Kinds
// without a pod template have none.
func Of(raw []byte) ([]Ref, error) {
	var w workload
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, fmt.Errorf("pod template: %w", err)
	}
	switch {
	case w.Spec.Template != nil:
		return OfPod(&w.Spec.Template.Spec), nil
	case w.Spec.JobTemplate != nil && w.Spec.JobTemplate.Spec.Template != nil:
		return OfPod(&w.Spec.JobTemplate.Spec.Template.Spec), nil
	}
	return nil, nil
}

type set map[Ref]struct{}

func (s set) add(kind, name string) {
	if name != "" {
		s[Ref{Kind: kind, Name: name}] = struct{}{}
	}
}

// OfPod reads the references from the spec of a Pod, sorted, each once.
func OfPod(p *corev1.PodSpec) []Ref {
	s := set{}
	if p.ServiceAccountName != "default" {
		s.add("ServiceAccount", p.ServiceAccountName)
	}
	for _, r := range p.ImagePullSecrets {
		s.add("Secret", r.Name)
	}
	for i := range p.Volumes {
		s.ofVolume(&p.Volumes[i].VolumeSource)
	}
	for _, containers := range [][]corev1.Container{p.InitContainers, p.Containers} {
		for i := range containers {
			s.ofEnv(containers[i].Env, containers[i].EnvFrom)
		}
	}
	out := make([]Ref, 0, len(s))
	for r := range s {
		out = append(out, r)
	}
	return Sorted(out)
}

func (s set) ofEnv(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			s.add("ConfigMap", r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			s.add("Secret", r.Name)
		}
	}
	for _, f := range from {
		if f.ConfigMapRef != nil {
			s.add("ConfigMap", f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			s.add("Secret", f.SecretRef.Name)
		}
	}
}

func (s set) ofVolume(v *corev1.VolumeSource) {
	secretRef := func(r *corev1.LocalObjectReference) {
		if r != nil {
			s.add("Secret", r.Name)
		}
	}
	switch {
	case v.ConfigMap != nil:
		s.add("ConfigMap", v.ConfigMap.Name)
	case v.Secret != nil:
		s.add("Secret", v.Secret.SecretName)
	case v.PersistentVolumeClaim != nil:
		s.add("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName)
	case v.Projected != nil:
		for _, src := range v.Projected.Sources {
			if src.ConfigMap != nil {
				s.add("ConfigMap", src.ConfigMap.Name)
			}
			if src.Secret != nil {
				s.add("Secret", src.Secret.Name)
			}
		}
	case v.CSI != nil:
		secretRef(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		s.add("Secret", v.AzureFile.SecretName)
	case v.CephFS != nil:
		secretRef(v.CephFS.SecretRef)
	case v.Cinder != nil:
		secretRef(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		secretRef(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		secretRef(v.ISCSI.SecretRef)
	case v.RBD != nil:
		secretRef(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		secretRef(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		secretRef(v.StorageOS.SecretRef)
	}
}
