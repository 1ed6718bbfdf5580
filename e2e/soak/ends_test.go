package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
	"github.com/isthmus-dev/isthmus/e2e/soak/judge"
)

var clusters = schema.GroupVersionResource{Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters"}

func dynamicOf(cluster interface {
	RESTConfig() (*rest.Config, error)
},
) (dynamic.Interface, error) {
	config, err := cluster.RESTConfig()
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

// conditionOf is the status of a condition.
func conditionOf(u *unstructured.Unstructured, name string) string {
	list, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return err.Error()
	}
	for _, one := range list {
		if c, ok := one.(map[string]any); ok && c["type"] == name {
			return fmt.Sprint(c["status"])
		}
	}
	return "not there"
}

// templatesOf reads what the control plane has of the run.
func templatesOf(ctx context.Context, ns string) ([]judge.Template, error) {
	client, err := dynamicOf(world.System)
	if err != nil {
		return nil, err
	}
	var out []judge.Template
	for kind, gvr := range resources {
		list, err := client.Resource(gvr).Namespace(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, u := range list.Items {
			n := numberOf(&u)
			if n < 0 {
				continue // a cluster's own, like kube-root-ca.crt
			}
			t := judge.Template{
				Key: judge.Key{Kind: kind, Name: u.GetName()}, UID: string(u.GetUID()), N: n,
				Replicas: replicasOf(&u), Deleting: u.GetDeletionTimestamp() != nil,
			}
			if kind == judge.Policy {
				names, _, err := unstructured.NestedStringSlice(u.Object, "spec", "placement", "clusterAffinity", "clusterNames")
				way, _, err2 := unstructured.NestedString(u.Object, "spec", "placement", "replicaScheduling", "replicaSchedulingType")
				if err := errors.Join(err, err2); err != nil {
					return nil, err
				}
				t.Clusters, t.Divided = names, way == "Divided"
			}
			out = append(out, t)
		}
	}
	return out, nil
}

func replicasOf(u *unstructured.Unstructured) int64 {
	n, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if !found || err != nil {
		return 0
	}
	return n
}

// copiesOf reads what the members have of the run.
func copiesOf(ctx context.Context, ns string) ([]judge.Copy, error) {
	var out []judge.Copy
	for _, m := range world.Members {
		client, err := dynamicOf(m)
		if err != nil {
			return nil, err
		}
		for _, kind := range kindNames {
			list, err := client.Resource(resources[kind]).Namespace(ns).List(ctx, metav1.ListOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
			for _, u := range list.Items {
				if numberOf(&u) < 0 {
					continue
				}
				out = append(out, judge.Copy{
					Member: m.Name(), Key: judge.Key{Kind: kind, Name: u.GetName()}, UID: string(u.GetUID()),
					TemplateUID: u.GetAnnotations()["isthmus.dev/template-uid"], N: numberOf(&u), Replicas: replicasOf(&u),
					Managed: u.GetLabels()["isthmus.dev/managed"] == "true",
				})
			}
		}
	}
	return out, nil
}

// changesOf reads what the members' audit logs say of the run.
func changesOf(t testing.TB, ns string, logs map[string]labtest.AuditLog) (out []judge.Change, foreign []string) {
	t.Helper()
	for member, log := range logs {
		for _, a := range log.Read(t) {
			kind, ours := kindOf(a.ObjectRef.APIGroup, a.ObjectRef.Resource)
			if !ours || !a.Writes() || a.ObjectRef.Namespace != ns || a.ObjectRef.Subresource != "" {
				continue
			}
			switch a.User.Username {
			case labtest.ApplyUser:
				if c, ok := changeOf(member, kind, a); ok {
					out = append(out, c)
				}
			case labtest.ReadUser:
				foreign = append(foreign, fmt.Sprintf("%s: %s %s by the identity that only reads and routes", member, a.Verb, a.RequestURI))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b judge.Change) int { return a.At.Compare(b.At) })
	return out, foreign
}

func kindOf(group, resource string) (string, bool) {
	for _, kind := range kindNames {
		if gvr := resources[kind]; gvr.Group == group && gvr.Resource == resource {
			return kind, true
		}
	}
	return "", false
}

// partial is what is read of objects, and of a Status, in an audit log.
type partial struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Details  struct {
		UID string `json:"uid"`
	} `json:"details"`
}

func changeOf(member, kind string, a labtest.Audited) (judge.Change, bool) {
	var request, response partial
	if len(a.RequestObject) > 0 && json.Unmarshal(a.RequestObject, &request) != nil {
		return judge.Change{}, false
	}
	if len(a.ResponseObject) > 0 && json.Unmarshal(a.ResponseObject, &response) != nil {
		return judge.Change{}, false
	}
	c := judge.Change{
		Member: member, Key: judge.Key{Kind: kind, Name: a.ObjectRef.Name}, User: a.User.Username, Code: a.ResponseStatus.Code,
		Verb: a.Verb, N: -1, TemplateUID: response.Metadata.Annotations["isthmus.dev/template-uid"],
		UID: string(response.Metadata.UID), At: a.StageTimestamp,
	}
	if c.UID == "" {
		c.UID = response.Details.UID
	}
	if n, err := strconv.ParseInt(request.Metadata.Annotations[numbered], 10, 64); err == nil && c.Verb != "delete" {
		c.N = n
		c.TemplateUID = request.Metadata.Annotations["isthmus.dev/template-uid"]
	}
	if n, err := strconv.ParseUint(response.Metadata.ResourceVersion, 10, 64); err == nil {
		c.Version = n
	}
	if _, err := fmt.Sscanf(a.UserAgent, "isthmus-engine epoch/%d", &c.Epoch); err != nil {
		c.Epoch = -1
	}
	c.Marked = request.Metadata.Annotations["isthmus.dev/epoch"] != "" && c.Code < 300
	return c, c.Name != "kube-root-ca.crt"
}
