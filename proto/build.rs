//! Compiles the definitions in Rust, so that a build needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "kubelet/deviceplugin_v1beta1.proto",
        "kubelet/dra_v1.proto",
        "kubelet/pluginregistration_v1.proto",
        "nri/api_v1alpha1.proto",
        "nri/ttrpc.proto",
        "sluice/control_v1.proto",
    ];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().btree_map(".nri").compile_fds(descriptors)?;
    Ok(())
}
