package engine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// Reasons of Events on templates, as clients of the API know them.
const (
	reasonPolicyApplied  = "ApplyPolicySucceed"
	reasonScheduled      = "ScheduleBindingSucceed"
	reasonScheduleFailed = "ScheduleBindingFailed"
	reasonSynced         = "SyncWorkSucceed"
	reasonSyncFailed     = "SyncWorkFailed"
	reasonOverrideFailed = "ApplyOverridePolicyFailed"
	reasonNotAdmitted    = "OverrideNotAdmitted"
	reasonLimited        = "LimitedByNamespace"
	reasonHeld           = "OnHold"
	reasonEvicted        = "EvictWorkloadFromCluster"
	reasonWaits          = "RemovalWaits"
	reasonDrift          = "DriftCorrected"
	reasonConflict       = "UnmanagedObjectExists"
	reasonForbidden      = "NeverPropagated"
	reasonAdopted        = "Adopted"
	reasonDropped        = "FieldsDropped"
	reasonNamespaceKept  = "NamespaceKept"
	reasonDefinitionKept = "DefinitionKept"
	reasonRepeated       = "CronJobInSeveralClusters"

	reasonAdoptionRefused = "AdoptionRefused"
)

// newRecorder limits Events of one object: a burst, then one a minute.
func newRecorder(client kubernetes.Interface) record.EventRecorder {
	b := record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 20, QPS: 1.0 / 60})
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return b.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "isthmus"})
}

func reference(key marks.Key, t *template) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: key.GroupVersion().String(), Kind: key.Kind,
		Namespace: key.Namespace, Name: key.Name, UID: t.UID, ResourceVersion: t.ResourceVersion,
	}
}

func (e *Engine) event(key marks.Key, t *template, typ, reason, format string, args ...any) {
	e.recorder.Eventf(reference(key, t), typ, reason, format, args...)
}
