{{/*
What OpenShift allows the pods of a component that work on the node. Its own constraints either refuse them or allow everything.
include "sluice.securityContextConstraints" (dict "root" $ "component" "cleanup" "account" "sluice-cleanup" "capabilities" (list))
*/}}
{{- define "sluice.securityContextConstraints" -}}
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata:
  {{- include "sluice.metadata" (dict "root" .root "component" .component "cluster" true) | nindent 2 }}
users:
  - system:serviceaccount:{{ .root.Release.Namespace }}:{{ .account }}
groups: []
allowHostDirVolumePlugin: true
allowHostIPC: false
allowHostNetwork: false
allowHostPID: true
allowHostPorts: false
allowPrivilegeEscalation: false
allowPrivilegedContainer: false
allowedCapabilities: {{ .capabilities | toJson }}
defaultAddCapabilities: []
requiredDropCapabilities: [ALL]
readOnlyRootFilesystem: true
runAsUser: { type: MustRunAs, uid: 0 }
{{- if .root.Values.nodeAgent.seLinux.enabled }}
seLinuxContext:
  type: MustRunAs
  seLinuxOptions: {{- include "sluice.seLinuxOptions" .root | nindent 4 }}
{{- else }}
seLinuxContext: { type: RunAsAny }
{{- end }}
fsGroup: { type: RunAsAny }
supplementalGroups: { type: RunAsAny }
seccompProfiles: [runtime/default]
volumes: [hostPath, configMap, projected]
{{- end }}
